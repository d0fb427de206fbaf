"""Top-n per key: of each key the first n rows in an order."""

from holdfast.operators.top.operator import CHANGE, TopOperator

__all__ = ["CHANGE", "TopOperator"]
