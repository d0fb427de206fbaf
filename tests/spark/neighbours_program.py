"""Two executors on one host: is a folder shared by them? Run as a script, in a session of its own.

    python neighbours_program.py FOLDER …

A line of JSON per folder: the error, or null.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from holdfast.errors import ConfigurationError
from holdfast.spark.executors import check_shared, send_holdfast
from holdfast.spark.hosts import LiveHosts


def main() -> None:
    builder = SparkSession.builder.master("local-cluster[2,1,512]")
    builder = builder.config("spark.executor.memory", "512m").config("spark.ui.enabled", "false")
    context = builder.getOrCreate().sparkContext
    send_holdfast(context)
    hosts = LiveHosts(context)
    while sum(map(len, hosts.neighbours().values())) < 2:
        time.sleep(0.05)
    for folder in sys.argv[1:]:
        try:
            check_shared(context, hosts.neighbours(), Path(folder))
            print(json.dumps(None))
        except ConfigurationError as error:
            print(json.dumps(str(error)))


if __name__ == "__main__":
    main()
