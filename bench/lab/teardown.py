"""How a lab goes away: by name, whoever made it, whatever is left of it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from bench.lab.names import Place
from bench.lab.network import namespaces_of, remove_namespaces
from bench.lab.processes import kill_all

__all__ = ["mounts_under", "tear_down"]


def mounts_under(folder: Path) -> list[Path]:
    """What is mounted in a folder, innermost first."""
    text = Path("/proc/self/mounts").read_text()
    points = (Path(_unescaped(line.split()[1])) for line in text.splitlines())
    return sorted((p for p in points if folder in p.parents), reverse=True)


def _unescaped(text: str) -> str:
    """The kernel writes spaces in paths as octal numbers.

    >>> _unescaped(r"/a\\040b")
    '/a b'
    """
    return text.encode().decode("unicode_escape").encode("latin-1").decode()


def tear_down(name: str, folder: Path) -> None:
    """End a lab's processes, and remove its namespaces, mounts and data. Its logs stay."""
    for namespace in namespaces_of(name):
        kill_all(namespace)
    remove_namespaces(name)
    for point in mounts_under(folder):
        subprocess.run(["umount", str(point)], check=True)
    for data in ("hosts", "data"):
        if (folder / data).exists():
            shutil.rmtree(folder / data)
    # Last: as long as it is there, somebody who finds the folder knows what to clean.
    Place(folder).state.unlink(missing_ok=True)
