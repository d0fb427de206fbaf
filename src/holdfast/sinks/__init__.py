"""Where output goes, exactly once."""
