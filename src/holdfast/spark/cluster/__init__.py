"""The hosts of a cluster as Spark knows them, and jobs on them."""
