"""Starts pipelines that can't run, in one Spark session, and says what they say. Run as a script.

    python bad_input_program.py WORK '{"start option": …}'

Commands as in cluster_program.py, but errors are answers and the program goes on.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from holdfast.errors import HoldfastError
from holdfast.spark.cluster.executors import check_executors
from holdfast.spark.jvm.hosts import LiveHosts
from holdfast.spark.query import Query
from tests.lab.cluster_program import begin, say


def main() -> None:
    work, options = Path(sys.argv[1]), json.loads(sys.argv[2])
    query: Query | None = None
    say(answer="ready", value=None)
    for line in sys.stdin:
        command = line.strip()
        try:
            if command == "start":
                query = None
                query = begin(work, options)
            elif command == "packages":
                context = SparkSession.builder.getOrCreate().sparkContext
                hosts = [host.name for host in LiveHosts(context).hosts()]
                check_executors(context, hosts, {"no-such-package": (1, 2)})
            elif command == "run":
                assert query is not None
                query.process_all_available()
            elif command == "stop":
                break
        except HoldfastError as error:
            say(answer="failed", kind=error.kind, value=str(error))
            continue
        say(answer=command, value=None)
    if query is not None and query.is_active:
        query.stop()
    say(answer="stop", value=None)


if __name__ == "__main__":
    main()
