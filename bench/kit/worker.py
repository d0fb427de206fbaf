"""The child process of a trial: ``python -m bench.kit.worker TRIAL.json``."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from importlib import import_module
from pathlib import Path

import msgspec

from bench.kit.trial import MARK, Note, Outcome, Trial

_MODULES = {
    "holdfast": "holdfast",
    "floor": "floor",
    "heap": "spark_own",
    "rocksdb": "spark_own",
    "keyed": "processes",
    "batch": "processes",
    "dropin-row": "processes",
    "dropin-pandas": "processes",
    "tws-row": "transform_with_state",
    "tws-pandas": "transform_with_state",
}


def _say(note: Note) -> None:
    print(MARK + msgspec.json.encode(note).decode(), flush=True)


def _end_with_parent() -> None:
    """Wait for the end of the standard input; the JVM and its workers end when we do."""
    sys.stdin.buffer.read()
    os._exit(1)


def main(path: str) -> int:
    """Run the trial described in a file; notes go to the standard output."""
    trial = msgspec.json.decode(Path(path).read_bytes(), type=Trial)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    contender = import_module(f"bench.kit.contenders.{_MODULES[trial.contender]}")
    try:
        outcome: Outcome = contender.run(trial, lambda epoch: _say(Note(epoch=epoch)))
    except Exception as error:  # noqa: BLE001 - the harness reports it as this contender's result
        traceback.print_exc()
        _say(Note(error=f"{type(error).__name__}: {str(error).splitlines()[0][:300]}"))
        return 1
    _say(Note(outcome=outcome))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
