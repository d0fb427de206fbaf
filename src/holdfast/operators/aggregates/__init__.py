"""Aggregates: which kinds there are, and how buffers of each are merged and finished."""
