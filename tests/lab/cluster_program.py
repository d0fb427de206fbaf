"""A pipeline on the lab's cluster that does as it is told on its standard input. Run as a script.

    python cluster_program.py WORK '{"checkpoint_dir": …, "start option": …}'

WORK/in holds one Parquet file per epoch, output goes to WORK/out. A line of input is a command and
its arguments; the answer is one line of JSON. What happens meanwhile comes as lines with "event".
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import holdfast as hf
from holdfast import failpoints
from holdfast.driver import cluster
from holdfast.driver.engine import HostGoneError
from holdfast.errors import FencedError, HoldfastError
from holdfast.spark.query import Query
from holdfast.tasks.disk import DiskReport
from holdfast.tasks.here import Here

SCHEMA = "word string, amount long"
_speaking = threading.Lock()


def say(**words: Any) -> None:
    with _speaking:
        print(json.dumps(words), flush=True)


def begin(work: Path, options: dict[str, Any]) -> Query:
    # Spark finds the lab's settings by itself.
    builder = SparkSession.builder.appName("cluster-program")
    session = hf.configure(builder, preload=True).getOrCreate()
    rows = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    words = hf.stream(rows.parquet(str(work / "in")))
    counts = words.key_by("word").aggregate(n=hf.count(), total=hf.sum("amount"))
    pipeline = counts.write_to(hf.sinks.parquet(str(work / "out"), epoch_column="epoch"))
    if options.pop("flow", False):
        # Beside it a chain: each word once, and how many end with each letter, keyed again.
        once = words.key_by("word").drop_duplicates().named("once")
        by_end = once.key_by(F.substring("word", -1, 1).alias("ending"))
        endings = by_end.aggregate(words=hf.count()).named("endings")
        pipeline = hf.pipeline(
            pipeline,
            endings.write_to(hf.sinks.parquet(str(work / "endings"), epoch_column="epoch")),
        )
    query: Query = pipeline.start("cluster", **options)
    return query


def look(query: Query) -> dict[str, Any]:
    """What users can see of it, and which runs it holds."""
    status = query.status
    last = query.progress[-1] if query.progress else None
    site = query._running.hosts
    runs = query._running.ledger.version.runs().values()
    return {
        "state": status.state,
        "epoch": status.last_epoch,
        "checkpoint": status.last_checkpoint,
        "hosts": [host.name for host in site._fleet.hosts()],
        "moving": site.moving,
        "claim": query._running.coordinator.log.claim_number,
        "recoveries": [
            {"reason": r.reason, "seconds": dict(r.seconds)} for r in query.recoveries
        ],
        "placement": [
            {"partition": p.partition, "host": p.host, "why": p.why,
             "local_bytes": p.local_bytes, "remote_bytes": p.remote_bytes}
            for p in (last.placement if last else ())
        ],
        "fetched_bytes": [p.fetched_bytes for p in query.progress],
        "live": sorted(query._running.ledger.live_runs()),
        "runs": {run.name: run.stored.size_bytes if run.stored else None for run in runs},
    }  # fmt: skip


def wait_on(work: Path, site: cluster.ClusterSite, host: str) -> str:
    """A job on all hosts whose task on one never ends; it makes a file there. How the job ends."""
    hosts = [each.name for each in site._fleet.hosts()]
    begun = work / f"waits-on-{host}"

    def task(here: Here) -> DiskReport:
        if here.host == host:
            begun.touch()
            threading.Event().wait()
        return DiskReport(here.host)

    try:
        return str(site._fleet.run(hosts, task, "wait"))
    except HoldfastError as error:
        return str(error)


def gone_once(site: cluster.ClusterSite) -> None:
    """The next epoch loses a host while it looks at those that have joined."""
    place = site.place

    def gone(*_: Any) -> Any:
        setattr(site, "place", place)  # noqa: B010 - mypy lets nobody replace a method
        raise HostGoneError("look at local disks: h9 is gone")

    setattr(site, "place", gone)  # noqa: B010


def obey(work: Path, query: Query, command: str, arguments: list[str]) -> Any:
    if command == "run":
        query.process_all_available()
    elif command == "epochs":  # processed, but in no checkpoint
        query.spark_query.processAllAvailable()
    elif command == "checkpoint":
        return query.checkpoint()
    elif command == "await":
        return query.await_termination(float(arguments[0]))
    elif command == "look":
        return look(query)
    elif command == "drain":
        query.drain(arguments[0])
    elif command == "undrain":
        query.undrain(arguments[0])
    elif command == "wait_on":
        return wait_on(work, query._running.hosts, arguments[0])
    elif command == "gone_once":
        gone_once(query._running.hosts)
    elif command == "patience":  # how long to wait for an executor to come back, on a busy machine
        cluster._RETURN_S = float(arguments[0])
    elif command == "announce":  # say when a failpoint is passed, each time
        _announce(arguments[0])
    elif command == "pause":  # say so once, and wait there until the file is made
        failpoints.arm(arguments[0], lambda: _pause(work / "go", arguments[0]))
    else:
        raise ValueError(command)
    return None


def _announce(where: str) -> None:
    def passed() -> None:
        say(event=where)
        _announce(where)

    failpoints.arm(where, passed)


def _pause(go: Path, where: str) -> None:
    say(event=where)
    while not go.exists():
        time.sleep(0.02)


def main() -> int:
    logging.basicConfig(level="INFO", format="%(asctime)s %(name)s %(message)s", stream=sys.stderr)
    logging.getLogger("py4j").setLevel("WARNING")
    work, options = Path(sys.argv[1]), json.loads(sys.argv[2])
    try:
        query = begin(work, options)
        say(answer="start", value=query._running.coordinator.log.claim_number)
        for line in sys.stdin:
            command, *arguments = line.split()
            if command == "stop":
                break
            say(answer=command, value=obey(work, query, command, arguments))
        query.stop()
        query.await_termination(0)
    except FencedError as error:
        say(answer="failed", kind=error.kind, value=str(error))
        return FencedError.EXIT_CODE
    except HoldfastError as error:
        say(answer="failed", kind=error.kind, value=str(error))
        return 1
    say(answer="stop", value=None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
