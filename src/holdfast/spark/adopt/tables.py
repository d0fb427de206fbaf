"""State tables made of adopted rows: one Spark job per table, whose tasks write stored runs."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.functions import expr

from holdfast.errors import CorruptionError, ProcessingError
from holdfast.operators.columns import column
from holdfast.operators.process.entry import entry_low
from holdfast.operators.process.tables import MAP_KEY
from holdfast.spark.adopt.old_query import reasons_of
from holdfast.state.columns import one_array, take_all
from holdfast.state.hashing import Hashes, entry_hashes, partition_range, partition_sql
from holdfast.state.keys import SortedRows, sort_rows
from holdfast.state.run import Run, StoredForm
from holdfast.state.schema import TableSchema, time_to_order
from holdfast.state.stored import encode_stored
from holdfast.state.text import python_rows, python_values
from holdfast.storage import Storage

__all__ = ["AdoptedTable", "partitions_for", "write_table"]

# A task holds its rows in memory to sort them, and they may be several times what files hold.
_TASK_BYTES = 32 << 20
_SMALL_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class AdoptedTable:
    """A state table and the rows it begins with.

    The rows' columns go by place: the hash of the state key (a bigint with its bits), keys, values;
    in a timed table the time (ms) stands behind the keys.
    """

    schema: TableSchema
    rows: DataFrame
    sparse: bool = False
    """Whether a key has a row for each of its values, with nulls for the others."""


def partitions_for(state_bytes: int, cores: int) -> int:
    """How many tasks, and so runs, a state of this size is cut into.

    >>> partitions_for(1000, cores=8), partitions_for(100 << 20, 8), partitions_for(10 << 30, 8)
    (1, 8, 320)
    """
    return 1 if state_bytes <= _SMALL_BYTES else max(cores, -(-state_bytes // _TASK_BYTES))


def write_table(
    table: AdoptedTable, storage: Storage, *, claim: int, epoch: int, partitions: int
) -> list[Run]:
    """Write a table's rows as stored runs, one per partition that has any."""
    writer = _Writer(table.schema, table.sparse, storage, claim, epoch, partitions)
    # By place: names of state columns have dots in them, which Spark takes for fields of structs.
    named = table.rows.toDF(*(f"_{index}" for index in range(len(table.rows.columns))))
    by_partition = named.repartitionById(partitions, expr(partition_sql("_0", partitions)))
    try:
        rows = by_partition.mapInArrow(writer.task, "run binary").collect()
    except (PySparkException, Py4JJavaError) as error:
        reasons = "; because: ".join(reasons_of(error))
        raise ProcessingError(
            f"the old state could not be moved to {table.schema.table!r}: {reasons}",
            hint="mend the cause and adopt again; the old query is as it was",
        ) from error
    return [msgspec.json.decode(bytes(row[0]), type=Run) for row in rows]


@dataclass(frozen=True)
class _Writer:
    """The part that runs in tasks."""

    schema: TableSchema
    sparse: bool
    storage: Storage
    claim: int
    epoch: int
    partitions: int

    def task(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        gathered = [batch for batch in batches if batch.num_rows]
        if gathered:
            run = self._run(context.partitionId(), self._sorted(pa.Table.from_batches(gathered)))
            yield pa.record_batch({"run": pa.array([msgspec.json.encode(run)], pa.binary())})

    def _sorted(self, table: pa.Table) -> pa.Table:
        hashes = column(table, "_0", pa.int64()).to_numpy().view(np.uint64)
        columns = [column(table, f"_{i}", c.type) for i, c in enumerate(self.schema.columns, 1)]
        if self.schema.timed:
            times = column(table, f"_{len(columns) + 1}", pa.int64()).to_numpy()
            firsts = [pa.array(time_to_order(times)), pa.array(hashes)]
        else:
            firsts = [pa.array(self._row_hashes(hashes, columns))]
        whole = pa.Table.from_arrays([*firsts, *columns], schema=self.schema.arrow)
        rows = sort_rows(whole, self.schema.sort_columns)
        if self.sparse:
            return _merged(rows)
        if len(rows.starts) != rows.table.num_rows:
            raise CorruptionError(f"the old state holds {_repeated(rows)} more than once")
        return rows.table

    def _row_hashes(self, hashes: Hashes, columns: Sequence[pa.Array]) -> Hashes:
        """In a prefixed table the lower half of a hash tells a key's entries apart."""
        if not self.schema.prefix:
            return hashes
        entry = self.schema.keys[-1]
        if entry.name == MAP_KEY:
            names = python_values(columns[len(self.schema.keys) - 1])
            low = np.array([entry_low(name, entry.type) for name in names], np.uint32)
        else:
            low = np.full(len(hashes), (self.epoch + 1) & 0xFFFFFFFF, np.uint32)
        return entry_hashes(hashes, low)

    def _run(self, partition: int, table: pa.Table) -> Run:
        data, info = encode_stored([table], self.schema.arrow)
        name = f"{self.claim}-{self.epoch}-{uuid.uuid4().hex[:16]}"
        path = f"runs/{name}-{uuid.uuid4().hex[:8]}.parquet"
        self.storage.put(path, data)
        return Run(
            name,
            self.schema.table,
            partition_range(partition, self.partitions),
            self.epoch,
            self.epoch,
            info.rows,
            stored=StoredForm(path, info.size_bytes, info.checksum, info.tail_bytes),
        )


def _merged(rows: SortedRows) -> pa.Table:
    """One row per key, of rows that have one value each."""
    sizes = np.diff(rows.starts, append=rows.table.num_rows)
    owners = np.repeat(np.arange(len(rows.starts)), sizes)
    places = range(rows.keys + 1)
    columns = take_all([one_array(rows.table.column(i)) for i in places], rows.starts)
    empty = np.ones(len(rows.starts), np.bool_)
    for values in rows.table.columns[rows.keys + 1 :]:
        array = one_array(values)
        there = np.flatnonzero(array.is_valid().to_numpy(zero_copy_only=False))
        at = np.full(len(rows.starts), -1)
        at[owners[there]] = there
        if len(np.unique(owners[there])) != len(there):
            raise CorruptionError(f"the old state holds a value of {_repeated(rows)} twice")
        columns.append(array.take(pa.array(at, mask=at < 0)))
        empty &= at < 0
    return pa.Table.from_arrays(columns, schema=rows.table.schema).filter(pa.array(~empty))


def _repeated(rows: SortedRows) -> str:
    """A key that occurs twice, in words."""
    ends = [*rows.starts[1:].tolist(), rows.table.num_rows]
    start = next(s for s, e in zip(rows.starts.tolist(), ends, strict=True) if e > s + 1)
    names = rows.table.column_names[1 : rows.keys + 1]
    return str(python_rows(rows.table.select(names).slice(start, 1))[0])
