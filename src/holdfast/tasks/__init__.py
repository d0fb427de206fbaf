"""What runs inside a task, on Arrow tables and files: nothing here knows Spark."""
