"""The program that runs on the lab's driver host: a word count that obeys commands on its input.

``python -m bench.kit.recovery.driver ENGINE``. Commands and answers are lines of JSON. Moments are of
the machine's monotonic clock, which all of the lab's hosts share.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import holdfast as hf
from holdfast.checkpoint.log import read_log
from holdfast.spark.query import Query
from holdfast.storage import open_storage

_FILES_PER_EPOCH = 10
_EXECUTORS_S = 120.0
_WARM_UP_TASKS = 8
_STORE = "spark.sql.streaming.stateStore"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class _Engine(Protocol):
    def start(self, name: str, source: str, checkpoint: str, local: str) -> dict[str, Any]: ...
    def run(self) -> dict[str, Any]: ...
    def stop(self) -> dict[str, Any]: ...


def _words(spark: SparkSession, source: str) -> DataFrame:
    text = spark.readStream.option("maxFilesPerTrigger", _FILES_PER_EPOCH).text(source)
    return text.select(sf.explode(sf.split("value", " ")).alias("word"))


class _OnSpark:
    spark: SparkSession

    def executors(self, least: int) -> dict[str, Any]:
        """Wait until Spark has so many."""
        jvm: Any = self.spark.sparkContext._jsc
        deadline = time.monotonic() + _EXECUTORS_S
        while (found := jvm.sc().getExecutorMemoryStatus().size() - 1) < least:
            if time.monotonic() > deadline:
                raise TimeoutError(f"Spark has {found} executors, not {least}")
            time.sleep(0.05)
        # An executor's first tasks are slow: none of these failures should be the first to meet it.
        self.spark.range(100_000).repartition(_WARM_UP_TASKS).count()
        return {}


class _Holdfast(_OnSpark):
    def __init__(self) -> None:
        builder = SparkSession.builder.appName("recovery")
        self.spark = hf.configure(builder, preload=True).getOrCreate()
        self.query: Query | None = None
        self.checkpoint = ""
        self.events = _Events()

    def start(self, name: str, source: str, checkpoint: str, local: str) -> dict[str, Any]:
        counts = hf.stream(_words(self.spark, source)).key_by("word").aggregate(n=hf.count())
        self.checkpoint = checkpoint
        self.query = counts.write_to(hf.sinks.noop()).start(
            name, checkpoint, checkpoint_interval="1 hour", local_dir=local, partitions=1
        )
        return {}

    def run(self) -> dict[str, Any]:
        """Process what is there and put it into a checkpoint."""
        assert self.query is not None
        self.query.process_all_available()
        committed = time.monotonic()
        last = self.query.progress[-1]
        return {
            "committed": committed,
            "host": last.placement[0].host,
            "local_bytes": last.placement[0].local_bytes,
            "remote_bytes": last.placement[0].remote_bytes,
            "state_rows": last.state_rows,
            "epoch_seconds": dict(last.seconds),
        }

    def epochs(self, after: int) -> dict[str, Any]:
        """How many epochs were processed in this session."""
        assert self.query is not None
        while len(self.query.progress) <= after:
            if self.query.exception is not None:
                raise self.query.exception
            time.sleep(0.01)
        return {}

    def runs(self) -> dict[str, Any]:
        """What the newest checkpoint names."""
        entry = read_log(open_storage(self.checkpoint)).last_checkpoint
        assert entry is not None
        stored = [run.stored for run in entry.runs if run.stored is not None]
        return {
            "runs": [run.name for run in entry.runs],
            "stored_bytes": sum(each.size_bytes for each in stored),
            "largest": max(stored, key=lambda each: each.size_bytes).object,
        }

    def looked_at(self, host: str, since: float) -> dict[str, Any]:
        """Wait until the pipeline has seen what is on the disk of a host that joined."""
        deadline = time.monotonic() + _EXECUTORS_S
        while self.events.first(f"host {host} has", since) is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"nobody has looked at the disk of {host}")
            time.sleep(0.05)
        return {}

    def recovery(self, since: float) -> dict[str, Any]:
        """What Holdfast itself says of its last recovery."""
        assert self.query is not None
        found = [r for r in self.query.recoveries if r.began >= since]
        steps = dict(found[0].seconds) if found else {}
        detected = found[0].began if found else self.events.first("is gone", since)
        return {"detected": detected, "steps": steps, "events": self.events.since(since)}

    def stop(self) -> dict[str, Any]:
        if self.query is not None:
            self.query.stop()
            self.query = None
        return {}


class _Events(logging.Handler):
    """What Holdfast logs, with moments."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.seen: list[tuple[float, str]] = []
        logging.getLogger("holdfast").addHandler(self)
        logging.getLogger("holdfast").setLevel(logging.INFO)

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append((time.monotonic(), record.getMessage()))

    def first(self, text: str, since: float) -> float | None:
        return next((at for at, words in self.seen if at >= since and text in words), None)

    def since(self, since: float) -> list[tuple[float, str]]:
        return [(round(at - since, 3), words) for at, words in self.seen if at >= since]


class _SparkOwn(_OnSpark):
    """Spark's own aggregation with RocksDB, its checkpoint in the same HDFS."""

    def __init__(self) -> None:
        builder = SparkSession.builder.appName("recovery-spark")
        # The settings that Holdfast gives its own jobs help this one as well.
        self.spark = hf.configure(builder).getOrCreate()
        self.spark.conf.set("spark.sql.shuffle.partitions", "1")
        self.spark.conf.set("spark.sql.adaptive.enabled", "false")
        self.spark.conf.set(f"{_STORE}.providerClass", _ROCKSDB)
        self.query: Any = None
        self._again: Any = None
        self.restarts = 0

    def start(self, name: str, source: str, checkpoint: str, local: str) -> dict[str, Any]:
        del local
        counts = _words(self.spark, source).groupBy("word").agg(sf.count("*").alias("n"))
        writer = counts.writeStream.outputMode("update").format("noop").queryName(name)
        writer = writer.option("checkpointLocation", checkpoint)
        self._again = writer.start
        self.query = writer.start()
        changelog = self.spark.conf.get(f"{_STORE}.rocksdb.changelogCheckpointing.enabled", "false")
        return {"changelog": changelog}

    def run(self) -> dict[str, Any]:
        """Process what is there; Spark commits every batch. A query that died is started again."""
        before = self.restarts
        while True:
            try:
                self.query.processAllAvailable()
                break
            except Exception as error:
                if self.restarts - before >= 3:
                    raise
                logging.getLogger("bench").warning("Spark's query died: %.300s", error)
                self.restarts += 1
                self.query = self._again()
        committed = time.monotonic()
        return {"committed": committed, "restarts": self.restarts - before}

    def stop(self) -> dict[str, Any]:
        if self.query is not None:
            self.query.stop()
            self.query = None
        return {}


def main() -> None:
    """Obey until the input ends."""
    logging.basicConfig(format="%(asctime)s %(name)s %(message)s", stream=sys.stderr)
    engine: _Engine = _Holdfast() if sys.argv[1] == "holdfast" else _SparkOwn()
    _say({"ready": time.monotonic()})
    for line in sys.stdin:
        command = json.loads(line)
        name = command.pop("do")
        try:
            began = time.monotonic()
            answer = getattr(engine, name)(**command)
            _say({"began": began, "at": time.monotonic(), **answer})
        except Exception as error:  # noqa: BLE001 - whoever gave the command decides what it means
            _say({"error": f"{type(error).__name__}: {error}"[:2000]})


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
