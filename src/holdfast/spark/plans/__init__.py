"""How the rows of streams reach operators: a plan per kind of operator, in Spark's expressions."""
