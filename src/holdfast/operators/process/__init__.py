"""User code per key, with managed state: declarations, cells, timers, and the operator that runs it."""
