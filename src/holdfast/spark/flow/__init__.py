"""Pipelines of several operators: what feeds what, and the one Spark job that an epoch of it becomes."""
