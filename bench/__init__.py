"""Benchmarks: ``python -m bench NAME [--quick] [--json FILE]``; docs/benchmarks.md explains them."""
