"""Every touch of Spark's internals, by capability."""
