"""A streaming source for tests: what is added at once is one epoch, and crashes can be added too.

PySpark has no memory stream of its own. This one keeps each epoch as a Parquet file in a folder, so
that it can be replayed: after a crash, from another process, from any offset.
"""

from __future__ import annotations

import json
import operator
import os
import signal
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructType

from holdfast.driver.own_folders import until_exit
from holdfast.errors import ConfigurationError, InputError
from holdfast.spark.end_files import END_OPTION
from holdfast.spark.jvm.gateway import process_id
from holdfast.storage.local import check_no_home

__all__ = ["EpochSource"]

_CRASH = "_holdfast_crash"
_DRIVER = "_driver.json"
_SCHEMA = "_schema.json"
_END = "_end"
_FIRST_MODIFIED_S = 1_000_000_000


class _Crash:
    def __repr__(self) -> str:
        return "EpochSource.CRASH"


class EpochSource:
    """A replayable stream of epochs that a test adds one by one.

    >>> import holdfast as hf
    >>> source = EpochSource(spark, "word string, n long")
    >>> source.add([("kelp", 1), ("rock", 2)]), source.add([]), source.add([{"word": "kelp", "n": 3}])
    (0, 1, 2)
    >>> counts = hf.stream(source.df).key_by("word").aggregate(n=hf.sum("n"))

    With a ``path`` the epochs stay there, and a restarted program that opens the source again goes on
    where it was (``len(source)`` epochs are there already). Without one, the folder is temporary.

    With ``crashes=True`` rows may contain ``EpochSource.CRASH``: the driver of the newest source on
    that path, Python and JVM, is killed with SIGKILL when such an epoch is first processed. Each
    sentinel kills once, so the replayed epoch passes. For drivers and executors on one host.
    """

    CRASH: Final[object] = _Crash()
    """Among the rows of an epoch: dies here, once."""

    def __init__(
        self,
        spark: SparkSession,
        schema: str | StructType,
        path: str | os.PathLike[str] | None = None,
        *,
        crashes: bool = False,
    ) -> None:
        self._spark = spark
        empty = spark.createDataFrame([], schema)
        self.schema: StructType = empty.schema
        self._arrow: pa.Schema = empty.toArrow().schema
        self._crashes = crashes
        if path is not None:
            check_no_home(path)
        self.path = _temporary_folder() if path is None else Path(path).absolute()
        _check_path(self.path)
        self._end = self.path / _END
        self.path.mkdir(parents=True, exist_ok=True)
        self._check_same_schema()
        self.df: DataFrame = self._stream()

    def __len__(self) -> int:
        """How many epochs were added, by this and earlier programs."""
        return sum(1 for _ in self.path.glob("epoch-*.parquet"))

    def add(self, rows: Sequence[Any] | pa.Table | Any) -> int:
        """Add one epoch; its number, counted from 0.

        ``rows``: tuples in the order of the schema, or dictionaries (what they leave out is null),
        and sentinels; or an Arrow table or a pandas DataFrame.
        """
        if self._end.exists():
            raise InputError(f"{self.path} has ended", hint="add all epochs before end()")
        number = len(self)
        table = self._table(rows, number)
        temporary = self.path / f".epoch-{os.getpid()}-{number}"
        target = self.path / f"epoch-{number:010}.parquet"
        pq.write_table(table, temporary)
        # Spark reads files in the order of their modification times.
        os.utime(temporary, (_FIRST_MODIFIED_S + number,) * 2)
        try:
            os.link(temporary, target)
        except FileExistsError:
            raise ConfigurationError(
                f"somebody else added epoch {number} to {self.path}",
                hint="let only one program at a time add epochs",
            ) from None
        finally:
            temporary.unlink()
        return number

    def end(self) -> None:
        """Say that no more epochs will come.

        A pipeline all of whose sources have ended reads what they have, then lets everything come out
        that waits for event time (windows, sessions, timers, rows of joins), and ends, whatever its
        trigger: the same as ``start(…, trigger="available-now", end_of_input=True)``. With
        ``trigger="manual"`` a further ``query.step()`` does it.
        """
        _write(self._end, "")

    def rows_so_far(self) -> DataFrame:
        """Everything added, as a batch: to compare a stream's result with."""
        reader = self._spark.read.schema(self._stored_schema())
        rows = reader.parquet(str(self.path))
        return rows.where(rows[_CRASH].isNull()).drop(_CRASH) if self._crashes else rows

    def _stream(self) -> DataFrame:
        reader = self._spark.readStream.schema(self._stored_schema())
        reader = reader.option("maxFilesPerTrigger", 1).option(END_OPTION, str(self._end))
        rows = reader.parquet(str(self.path))
        if not self._crashes:
            return rows
        pids = [os.getpid(), process_id(self._spark)]
        _write(self.path / _DRIVER, json.dumps({"host": socket.gethostname(), "pids": pids}))
        return rows.mapInArrow(_CrashOnce(str(self.path)), self.schema)

    def _stored_schema(self) -> StructType:
        if not self._crashes:
            return self.schema
        return StructType([*self.schema.fields]).add(_CRASH, StringType())

    def _check_same_schema(self) -> None:
        file = self.path / _SCHEMA
        now = self._stored_schema().json()
        if not file.exists():
            _write(file, now)
        elif (before := file.read_text(encoding="utf-8")) != now:
            raise ConfigurationError(
                f"{self.path} holds epochs of another schema: {before}",
                hint="open it with the same schema and the same crashes=…, or use a new folder",
            )

    def _table(self, rows: Any, number: int) -> pa.Table:
        if not isinstance(rows, Sequence):
            return self._with_crashes(self._by_spark(rows), [])
        data = [row for row in rows if row is not self.CRASH]
        crashes = [f"{number}.{i}" for i in range(len(rows) - len(data))]
        return self._with_crashes(self._by_arrow(data), crashes)

    def _with_crashes(self, table: pa.Table, crashes: list[str]) -> pa.Table:
        if not self._crashes:
            if crashes:
                raise InputError(
                    "this source can't crash", hint="make it with EpochSource(…, crashes=True)"
                )
            return table
        sentinels = pa.table({_CRASH: pa.array(crashes, pa.string())})
        return pa.concat_tables([table, sentinels], promote_options="default")

    def _by_arrow(self, rows: list[Any]) -> pa.Table:
        """Python rows as Arrow columns, without a Spark job where that gives the same."""
        names = self._arrow.names
        tuples = [_as_tuple(row, names) for row in rows]
        if any(pa.types.is_nested(kind) for kind in self._arrow.types):
            return self._by_spark(tuples)
        columns = zip(*tuples, strict=True) if tuples else [()] * len(names)
        arrays = [_array(field, values) for field, values in zip(self._arrow, columns, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self._arrow)

    def _by_spark(self, rows: Any) -> pa.Table:
        return self._spark.createDataFrame(rows, self.schema).toArrow()


@dataclass(frozen=True)
class _CrashOnce:
    """Drops sentinels in a task; the first to meet one kills the driver."""

    folder: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            sentinels = batch.column(_CRASH)
            for sentinel in sentinels.drop_null().to_pylist():
                self._crash(sentinel)
            yield batch.filter(pc.is_null(sentinels)).drop_columns([_CRASH])

    def _crash(self, sentinel: str) -> None:
        folder = Path(self.folder)
        try:
            (folder / f"_crashed-{sentinel}").touch(exist_ok=False)
        except FileExistsError:
            return
        driver = json.loads((folder / _DRIVER).read_text(encoding="utf-8"))
        if driver["host"] != socket.gethostname():
            raise ConfigurationError(
                f"EpochSource.CRASH met on {socket.gethostname()}, the driver is on "
                f"{driver['host']}",
                hint="test crashes where driver and executors share a host",
            )
        # Python first: it must not see the JVM go and tidy up.
        for pid in (*driver["pids"], os.getpid()):
            os.kill(pid, signal.SIGKILL)


def _as_tuple(row: Any, names: Sequence[str]) -> tuple[Any, ...]:
    if isinstance(row, dict):
        if unknown := row.keys() - set(names):
            raise InputError(
                f"{row!r} has unknown columns {sorted(unknown)}",
                hint=f"the schema's columns are {', '.join(names)}",
            )
        return tuple(row.get(name) for name in names)
    if isinstance(row, tuple) and len(row) == len(names):
        return tuple(row)
    raise InputError(
        f"{row!r} is not a row of ({', '.join(names)})",
        hint="give tuples of that length, or dictionaries",
    )


def _array(field: pa.Field, values: Sequence[Any]) -> pa.Array:
    if pa.types.is_timestamp(field.type) and field.type.tz is not None:
        # A naive datetime means local time, as it does to Spark.
        values = [v.astimezone(timezone.utc) if isinstance(v, datetime) else v for v in values]
    try:
        if pa.types.is_integer(field.type):  # Arrow would make 1 of 1.5
            values = [None if v is None else operator.index(v) for v in values]
        return pa.array(values, field.type)
    except (pa.ArrowException, TypeError, OverflowError) as error:
        raise InputError(
            f"column {field.name!r} is {field.type}: {error}", hint="give values of that type"
        ) from error


def _check_path(path: Path) -> None:
    if set(str(path)) & set("*?[]{}\\"):
        raise ConfigurationError(
            f"Spark would take {str(path)!r} for a pattern", hint="use a path without *?[]{}\\"
        )


def _temporary_folder() -> Path:
    # Not only until the object goes: queries may still read it.
    return until_exit("holdfast-epochs-")


def _write(path: Path, text: str) -> None:
    """Replace a small file; readers see it whole."""
    temporary = path.with_name(f".{path.name}-{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
