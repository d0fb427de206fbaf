"""The only room that imports PySpark."""
