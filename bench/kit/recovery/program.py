"""A driver program on the lab, as the benchmark sees it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.kit.recovery.hosts import SplitLab
from bench.lab.names import DRIVER

__all__ = ["DriverError", "DriverProgram"]

_ROOT = Path(__file__).resolve().parents[3]


class DriverError(RuntimeError):
    """The driver could not do what it was told."""


class DriverProgram:
    """One driver process on the lab's driver host."""

    def __init__(self, lab: SplitLab, engine: str, log: Path) -> None:
        command = [sys.executable, "-m", "bench.kit.recovery.driver", engine]
        line, variables = lab.command(DRIVER, command)
        self._lab = lab
        self._log = log
        path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(_ROOT))))
        with log.open("a") as errors:
            self._process = subprocess.Popen(
                line,
                env=os.environ | variables | {"PYTHONPATH": path},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=_ROOT,
            )
        self.ready: float = self._answer()["ready"]

    def ask(self, what: str, **arguments: Any) -> dict[str, Any]:
        """Give a command and wait for its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, **arguments}) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        if "error" in answer:
            raise DriverError(f"{what}: {answer['error']}")
        return answer

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise DriverError(f"the driver has ended; see {self._log}")

    def kill(self) -> None:
        """The driver host dies: Python and JVM, without a word."""
        self._lab.kill(DRIVER)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                continue
