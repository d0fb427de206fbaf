"""``python -m bench.lab.guard NAME FOLDER``: take a lab down when the process that opened it dies.

It waits at the other end of a pipe. A word on it means that the owner has cleaned up; silence and
the pipe's end mean that the owner was killed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bench.lab.teardown import tear_down

__all__ = ["Guard"]

_ALL_CLEAN = b"clean"
_ROOT = Path(__file__).resolve().parent.parent.parent


class Guard:
    """A process that outlives its owner by one clean-up."""

    def __init__(self, name: str, folder: Path) -> None:
        with (folder / "guard.log").open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.lab.guard", name, str(folder)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=_ROOT,
                env=os.environ | {"PYTHONPATH": str(_ROOT)},
                start_new_session=True,  # Ctrl-C is meant for the owner
            )

    def dismiss(self) -> None:
        """There is nothing left to clean up."""
        self._process.communicate(_ALL_CLEAN)


def main() -> int:
    """Wait, then clean up."""
    name, folder = sys.argv[1:]
    if sys.stdin.buffer.read() != _ALL_CLEAN:
        tear_down(name, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
