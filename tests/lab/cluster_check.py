"""Looks at a checkpoint directory from inside the lab, where HDFS can be reached. Run as a script.

    python cluster_check.py CHECKPOINT_DIR OUTPUT

Writes the state as OUTPUT/state.parquet and prints one line of JSON: what verify and placement
say, and the objects that nothing names.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from typer.testing import CliRunner

from holdfast.checkpoint.log import read_log
from holdfast.checkpoint.reader import stored_tables
from holdfast.checkpoint.retention import list_collectable
from holdfast.cli.app import app
from holdfast.state.hashing import FULL_RANGE
from holdfast.storage import open_storage


def main() -> None:
    directory, folder = sys.argv[1], Path(sys.argv[2])
    storage = open_storage(directory)
    log = read_log(storage)
    entry = log.last_checkpoint
    assert entry is not None
    rows = list(stored_tables(entry, storage)["aggregate.groups"].scan(FULL_RANGE))
    pq.write_table(pa.concat_tables(rows), folder / "state.parquet")
    named = set().union(*(log.reader.summary(number).objects for number in log.numbers))
    commands = {}
    for command in ("verify", "placement"):
        done = CliRunner().invoke(app, [command, directory], env={"COLUMNS": "200"})
        commands[command] = (done.exit_code, done.output)
    unnamed = sorted(set(list_collectable(storage)) - named)
    print(json.dumps({**commands, "epoch": entry.epoch, "unnamed": unnamed}))


if __name__ == "__main__":
    main()
