"""Joins of two streams: rows near each other in time, and rows with the version valid at their time."""
