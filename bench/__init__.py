"""Benchmarks: `./run bench NAME`."""
