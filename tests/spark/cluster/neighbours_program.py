"""Two executors on one host. Run as a script, in a session of its own.

    python neighbours_program.py WORK_DIR FOLDER …

A line of JSON that says how long tasks wait for their hosts before, while and after a pipeline runs
in WORK_DIR, and a line per folder: why it isn't shared by the executors, or null.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

import holdfast as hf
from holdfast.errors import ConfigurationError
from holdfast.spark.cluster.executors import check_shared, send_holdfast
from holdfast.spark.jvm.hosts import LiveHosts
from holdfast.spark.jvm.locality import SETTING


def waits(spark: SparkSession, work: Path) -> list[str]:
    conf = spark.sparkContext._jsc.sc().conf()
    found = [conf.get(SETTING, "")]
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
    counts = hf.stream(rows).key_by("value").aggregate(n=hf.count())
    query = counts.write_to(hf.sinks.noop()).start(
        "waits", work / "ck", trigger="manual", local_dir=work / "local"
    )
    query.step()
    found.append(conf.get(SETTING, ""))
    query.stop()
    return [*found, conf.get(SETTING, "")]


def main() -> None:
    builder = SparkSession.builder.master("local-cluster[2,1,512]")
    builder = builder.config("spark.executor.memory", "512m").config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    context = spark.sparkContext
    send_holdfast(context)
    hosts = LiveHosts(context)
    while sum(map(len, hosts.neighbours().values())) < 2:
        time.sleep(0.05)
    print(json.dumps(waits(spark, Path(sys.argv[1]))))
    for folder in sys.argv[2:]:
        try:
            check_shared(context, hosts.neighbours(), Path(folder))
            print(json.dumps(None))
        except ConfigurationError as error:
            print(json.dumps(str(error)))


if __name__ == "__main__":
    main()
