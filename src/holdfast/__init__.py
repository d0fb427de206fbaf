"""Managed state, checkpoints and recovery for PySpark streams."""
