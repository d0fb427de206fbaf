"""A Spark Structured Streaming query that has stopped, as its checkpoint location tells of it.

Only read here, never written: the old query can always be started again. State is read with Spark's
own ``statestore`` data source, offsets and source logs as files, wherever Hadoop finds them.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from holdfast.driver.scratch import ScratchReader
from holdfast.errors import ConfigurationError, InputError
from holdfast.spark.jvm.files import HadoopFolder
from holdfast.spark.jvm.frames import cloned
from holdfast.spark.jvm.gateway import java_error
from holdfast.spark.session import QUERY_SETTINGS

__all__ = ["OldQuery", "StatefulOperator", "reasons_of", "told"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class StatefulOperator:
    """A stateful operator of the old query, as Spark's ``state-metadata`` source names it."""

    id: int
    name: str
    stores: tuple[str, ...]
    properties: str | None

    def __str__(self) -> str:
        return f"{self.id} ({self.name})"


class OldQuery:
    """The checkpoint location of a stopped query, at its last committed batch."""

    def __init__(self, spark: SparkSession, location: str, batch: int, planned: int) -> None:
        """Use :meth:`open`."""
        self.spark = spark
        self.location = location
        self.batch = batch
        """The last batch that was committed: what it put into the state counts, nothing later."""
        self.planned = planned
        """The last batch that was begun; one more than :attr:`batch` if it was cut off."""
        self.operators = _operators(spark, location)

    @classmethod
    def open(cls, spark: SparkSession, location: str | Path) -> OldQuery:
        """Open it; ``ConfigurationError`` if it isn't the checkpoint of a query with state."""
        where = _absolute(location)
        session = cloned(spark, QUERY_SETTINGS)
        # These expressions are Holdfast's own: times without a zone are told by UTC, as everywhere in it,
        # and what doesn't fit is an error.
        session.conf.set("spark.sql.session.timeZone", "UTC")
        session.conf.set("spark.sql.ansi.enabled", "true")
        files = _Files(session, where)
        if not files.exists("metadata") or not files.exists("offsets"):
            raise ConfigurationError(
                f"{where} is not the checkpoint location of a Spark streaming query",
                hint="give the checkpointLocation that the query was started with",
            )
        batch, planned = files.last("commits"), files.last("offsets")
        if batch is None or planned is None:
            raise ConfigurationError(
                f"the query at {where} has not committed any batch",
                hint="there is nothing to adopt: start the moved job with a new checkpoint_dir",
            )
        # Spark finds state files with ids in their names only if told to look for them.
        version = files.read(f"commits/{batch}").split(b"\n", 1)[0].decode().removeprefix("v")
        session.conf.set("spark.sql.streaming.stateStore.checkpointFormatVersion", version)
        return cls(session, where, batch, planned)

    def operator(self, wanted: int | None) -> StatefulOperator:
        """The stateful operator of this number; None means the only one there is."""
        there = ", ".join(map(str, self.operators))
        if not self.operators:
            raise ConfigurationError(
                f"the query at {self.location} says of no stateful operator",
                hint="it has none, or Spark before 4.0 wrote it: then run a batch with Spark 4 first",
            )
        if wanted is None and len(self.operators) > 1:
            raise InputError(
                f"the query has {len(self.operators)} stateful operators: {there}",
                hint="name one with operator=… if the moved job does without the state of the others",
            )
        for operator in self.operators:
            if wanted in (None, operator.id):
                return operator
        raise InputError(f"the query has no stateful operator {wanted}", hint=f"there is: {there}")

    def state(self, operator: StatefulOperator, **options: Any) -> DataFrame:
        """The state of an operator after the last committed batch."""
        reader = self.spark.read.format("statestore").option("batchId", self.batch)
        reader = reader.option("operatorId", operator.id).options(**options)
        return told(
            f"the state of operator {operator} at {self.location}",
            lambda: reader.load(self.location),
        )

    def state_bytes(self, operator: StatefulOperator) -> int:
        """What the operator's files take in storage, all versions together."""
        return _Files(self.spark, self.location).size(f"state/{operator.id}")

    def position(self) -> dict[str, bytes]:
        """Spark's files, by relative path, from which a query continues after :attr:`batch`."""
        files = _Files(self.spark, self.location)
        if not files.read(f"offsets/{self.batch}").startswith(b"v1\n"):
            raise InputError(
                f"the query at {self.location} names its sources (it has an offset log of format 2)",
                hint="leave the job with Spark: only sources told apart by their place can be adopted yet",
            )
        with tempfile.TemporaryDirectory(prefix="holdfast-adopt-") as name:
            folder = Path(name)
            for relative in self._needed(files):
                files.fetch(relative, folder / relative)
            position = ScratchReader(folder).read(self.batch)
        return {path: _plain(path, data) for path, data in position.items()}

    def _needed(self, files: _Files) -> Iterable[str]:
        yield "metadata"
        for number in (self.batch - 1, self.batch):
            for folder in ("offsets", "commits"):
                if number >= 0:
                    yield f"{folder}/{number}"
        for source in files.names("sources"):
            for name in files.names(f"sources/{source}"):
                yield f"sources/{source}/{name}"

    def check_stopped(self) -> None:
        """Raise if the query has gone on since it was opened."""
        files = _Files(self.spark, self.location)
        if (files.last("commits"), files.last("offsets")) != (self.batch, self.planned):
            raise ConfigurationError(
                f"the query at {self.location} is still running: it has gone on after batch "
                f"{self.batch}",
                hint="stop it and adopt it again; nothing was written that counts",
            )


def _operators(spark: SparkSession, location: str) -> tuple[StatefulOperator, ...]:
    rows = told(
        f"the operators of the query at {location}",
        lambda: spark.read.format("state-metadata").load(location).collect(),
    )
    found: dict[int, StatefulOperator] = {}
    for row in rows:
        before = found.get(row.operatorId)
        stores = (*(before.stores if before else ()), row.stateStoreName)
        found[row.operatorId] = StatefulOperator(
            row.operatorId, row.operatorName, stores, row.operatorProperties
        )
    return tuple(found[number] for number in sorted(found))


def told(what: str, read: Callable[[], _T]) -> _T:
    """What Spark reads of an old query; ``ConfigurationError`` with all that Spark says if it can't."""
    try:
        return read()
    except (PySparkException, Py4JJavaError) as error:
        reasons = "; because: ".join(reasons_of(error))
        hint = (
            "read it with a Spark at least as new as the one that wrote it"
            if "newer version of Spark" in reasons
            else "the moved job needs what Spark's own reader of state (spark.read.format("
            '"statestore")) can read: mend the cause, or let the old query run another batch with '
            f"Spark {pyspark.__version__}, or leave its state and start the moved job with a new "
            "checkpoint_dir"
        )
        raise ConfigurationError(f"Spark can't read {what}: {reasons}", hint=hint) from error


def reasons_of(error: PySparkException | Py4JJavaError) -> list[str]:
    """What went wrong in the JVM and what that came from, each in a line, the outermost first."""
    java = java_error(error)
    found: list[str] = []
    while java is not None:
        text = str(java.getMessage() or java.toString()).strip().partition("\n")[0]
        if not any(text in known for known in found):
            found.append(text)
        java = java.getCause()
    return found or [str(error).strip().partition("\n")[0]]


def _absolute(location: str | Path) -> str:
    """Spark's JVM may have another working directory than Python."""
    text = str(location).rstrip("/")
    return text if ":" in text or text.startswith("/") else str(Path(text).absolute())


def _plain(path: str, data: bytes) -> bytes:
    """A commit without the ids of Spark's state files, which the moved job doesn't have."""
    if not path.startswith("commits/"):
        return data
    watermark = json.loads(data.split(b"\n", 1)[1]).get("nextBatchWatermarkMs", 0)
    return b'v1\n{"nextBatchWatermarkMs":%d}' % watermark


class _Files:
    """The files of a checkpoint location, through Hadoop: on a disk, in HDFS, in an object store."""

    def __init__(self, spark: SparkSession, location: str) -> None:
        try:
            self._folder = HadoopFolder(spark, location)
        except Py4JJavaError as error:
            raise ConfigurationError(
                f"{location} can't be opened: {error.java_exception.getMessage()}",
                hint="give Spark the file system's package and credentials, as for the old query",
            ) from error

    def exists(self, relative: str) -> bool:
        return self._folder.exists(relative)

    def names(self, folder: str) -> list[str]:
        return sorted(name for name in self._folder.names(folder) if not name.startswith("."))

    def last(self, folder: str) -> int | None:
        """The highest number that a file in a folder has for its name."""
        return max((int(name) for name in self.names(folder) if name.isdecimal()), default=None)

    def size(self, folder: str) -> int:
        return self._folder.size(folder)

    def read(self, relative: str) -> bytes:
        with tempfile.TemporaryDirectory(prefix="holdfast-adopt-") as folder:
            path = Path(folder) / "file"
            self.fetch(relative, path)
            return path.read_bytes()

    def fetch(self, relative: str, to: Path) -> None:
        if not self.exists(relative):
            raise ConfigurationError(
                f"{self._folder.location}/{relative} is missing: the query can't be continued",
                hint="restore the checkpoint location, or run the old query for a batch",
            )
        to.parent.mkdir(parents=True, exist_ok=True)
        self._folder.fetch(relative, to)
