"""Many hosts on one machine: network namespaces, Spark standalone, HDFS, and faults on demand."""

from bench.lab.lab import Lab

__all__ = ["Lab"]
