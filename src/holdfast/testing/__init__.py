"""What users and contributors test with."""
