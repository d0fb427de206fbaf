"""Adopting a running Spark query: its state and its place in the input become a checkpoint."""

from holdfast.spark.adopt.moving import Adoption, adopt
from holdfast.spark.adopt.old_query import OldQuery, StatefulOperator

__all__ = ["Adoption", "OldQuery", "StatefulOperator", "adopt"]
