"""Spark drivers begin sooner when the JVM finds its classes parsed and verified in an archive.

The archive is made once, by a driver that runs a small pipeline, and kept in the cache. A JVM that
can't use it (another Java, other jars) sees so itself and loads its classes as ever.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from bench.services.daemon import cache_folder, locked

__all__ = ["VARIABLE", "known_options", "options"]

VARIABLE = "SPARK_SUBMIT_OPTS"
"""The environment variable whose options Spark gives to a driver's JVM, and to no other."""

# A driver that lives for seconds never earns back what the second compiler costs.
_SHORT_LIFE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def known_options() -> str:
    """Options for a driver's JVM: with the archive, if it has been made already."""
    archive = _archive()
    if archive is None or not archive.exists():
        return _SHORT_LIFE
    # What doesn't fit is passed over; the warnings would stand in a driver's output.
    return f"{_SHORT_LIFE} -Xlog:cds*=off -Xshare:auto -XX:SharedArchiveFile={archive}"


def options() -> str:
    """Options for a driver's JVM; the first call on a machine makes the archive."""
    archive = _archive()
    if archive is not None and not archive.exists():
        with locked(archive.parent):
            if not archive.exists():
                _make(archive)
    return known_options()


def _archive() -> Path | None:
    java, spark = shutil.which("java"), find_spec("pyspark")
    if java is None or spark is None:
        return None
    parts = [str(Path(java).resolve()), str(spark.origin), version("pyspark")]
    name = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return cache_folder("classes") / f"{name}.jsa"


def _make(archive: Path) -> None:
    from tests.spark.support import PROGRAM, more_input

    with tempfile.TemporaryDirectory(dir=archive.parent, ignore_cleanup_errors=True) as name:
        work, made = Path(name), Path(name) / "made.jsa"
        more_input(work, epochs=2, rows=100, keys=10)
        asked = f"{_SHORT_LIFE} -Xlog:cds*=off -XX:ArchiveClassesAtExit={made}"
        environment = {**os.environ, VARIABLE: asked, "PYSPARK_PYTHON": sys.executable}
        # The JVM writes when it ends, after the program, and holds the output open until then.
        done = subprocess.run(
            [sys.executable, str(PROGRAM), str(work), "{}"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0 and made.exists():
            made.rename(archive)
        else:
            # Only slower: what is wrong with drivers, their own tests will say.
            print(f"no class archive was made:\n{done.stdout}{done.stderr}", file=sys.stderr)
