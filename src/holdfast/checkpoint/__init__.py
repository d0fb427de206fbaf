"""The log, the coordinator and retention. Knows state and storage, not Spark."""
