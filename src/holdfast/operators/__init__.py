"""What a task computes on Arrow tables and a view of state. Pure."""
