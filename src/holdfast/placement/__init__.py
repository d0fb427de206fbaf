"""Who should run what, and why: pure decisions on facts that are handed in."""
