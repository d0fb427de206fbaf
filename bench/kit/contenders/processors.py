"""One computation, count and sum per word, as each kind of user code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

import holdfast as hf

__all__ = ["OUTPUT", "BatchCount", "CountPandas", "CountRows", "KeyedCount"]

OUTPUT = "word string, n long, total double"


class KeyedCount(hf.KeyedProcess):
    """Per key, with Holdfast's own state."""

    output = OUTPUT
    n = hf.ValueState("long", default=0)
    total = hf.ValueState("double", default=0.0)

    def process(self, key: Any, rows: Any, ctx: hf.Context) -> Iterator[Any]:
        """Count and sum."""
        del ctx
        n, total = self.n.value, self.total.value
        for row in rows:
            n += 1
            total += row.amount
        self.n.value, self.total.value = n, total
        yield key.word, n, total


class BatchCount(hf.BatchProcess):
    """On columns, with NumPy."""

    output = OUTPUT
    n = hf.ValueState("long", default=0)
    total = hf.ValueState("double", default=0.0)

    def process(self, batch: hf.KeyedBatch) -> hf.BatchResult:
        """Count and sum."""
        n = batch.state["n"].to_numpy() + batch.counts
        total = batch.state["total"].to_numpy() + batch.reduce(np.add, "amount")
        columns = {"n": n, "total": total}
        return hf.BatchResult(columns, {"word": batch.keys["word"], **columns})


class CountRows(StatefulProcessor):
    """PySpark's own, on Rows: the same class runs on Spark and through the drop-in."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self.state = handle.getValueState("sums", "n long, total double")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """Count and sum."""
        del timerValues
        n, total = self.state.get() or (0, 0.0)
        for row in rows:
            n += 1
            total += row.amount
        self.state.update((n, total))
        yield Row(word=key[0], n=n, total=total)

    def close(self) -> None:
        """Nothing to close."""


class CountPandas(StatefulProcessor):
    """PySpark's own, on pandas frames."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self.state = handle.getValueState("sums", "n long, total double")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Any,
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        """Count and sum."""
        del timerValues
        n, total = self.state.get() or (0, 0.0)
        for frame in rows:
            n += len(frame)
            total += float(frame["amount"].sum())
        self.state.update((n, total))
        yield pd.DataFrame({"word": [key[0]], "n": [n], "total": [total]})

    def close(self) -> None:
        """Nothing to close."""
