"""Runs, tables and versions: pure Arrow and NumPy, no Spark, no network."""
