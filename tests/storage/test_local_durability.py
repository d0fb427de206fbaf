"""What would be left on the disk if the machine lost its power at any moment.

The writer runs under strace; a model of a file system that keeps only what was synced (and loses
everything else) follows its system calls. Nothing of the storage is replaced or imitated.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_CALL = re.compile(r"^(?:\d+ +)?(\w+)\((.*)\) += (-?\d+)")
_PROGRAM = """
import os, sys
from holdfast.storage import LocalStorage
storage = LocalStorage(sys.argv[1])
def done(name): os.write(1, name.encode())
storage.put_if_absent("log/0", b"a" * 100_000); done("log/0")
storage.put("runs/deep/er/1-a", b"b" * 100_000); done("runs/deep/er/1-a")
storage.put("runs/deep/er/1-a", b"c" * 200_000); done("runs/deep/er/1-a")
storage.put_if_absent("log/1", b""); done("log/1")
other = LocalStorage(sys.argv[1])
other.put_if_absent("log/2", b"d"); done("log/2")
"""


class ForgetfulDisk:
    """Files by path as programs see them (`now`) and as they are after a power cut (`kept`)."""

    def __init__(self, root: Path) -> None:
        self.now: dict[str, int] = {}
        self.kept: dict[str, int] = {str(p): 0 for p in (root, *root.parents)}
        self.written: dict[int, int] = {}
        self.synced: dict[int, int] = {}

    def call(self, name: str, paths: list[str], result: int) -> None:
        path = paths[-1]
        if name == "mkdir" or (name == "openat" and path not in self.now):
            self.now[path] = len(self.written)
            self.written[self.now[path]] = self.synced[self.now[path]] = 0
        elif name == "write":
            self.written[self.now[path]] += result
        elif name in ("link", "linkat"):
            self.now[path] = self.now[paths[0]]
        elif name == "rename":
            self.now[path] = self.now.pop(paths[0])
        elif name == "unlink":
            del self.now[path]
        elif name == "fsync":
            self.sync(path)

    def sync(self, path: str) -> None:
        if path in self.now:
            self.synced[self.now[path]] = self.written[self.now[path]]
        self.kept = {p: i for p, i in self.kept.items() if str(Path(p).parent) != path}
        self.kept |= {p: i for p, i in self.now.items() if str(Path(p).parent) == path}

    def survives(self, path: str) -> bool:
        return all(str(p) in self.kept for p in (Path(path), *Path(path).parents))

    def is_whole(self, path: str) -> bool:
        return self.synced[self.kept[path]] == self.written[self.kept[path]]


def calls(trace: Path, root: Path) -> Iterator[tuple[str, list[str], int]]:
    """Successful calls that touch ``root``; for a write to standard output, its text."""
    for line in trace.read_text().splitlines():
        if (match := _CALL.match(line)) is None or int(match[3]) < 0:
            continue
        name, arguments = match[1], match[2]
        if name == "write" and arguments.startswith("1<"):
            yield "done", re.findall(r'"(.*)"', arguments), 0
        elif name == "openat" and "O_CREAT" not in arguments:
            continue
        else:
            wanted = r"<(/[^>]*)>" if name in ("write", "fsync") else r'"(/[^"]*)"'
            paths = re.findall(wanted, arguments)
            if any(str(root) in path or path in map(str, root.parents) for path in paths):
                yield name, paths, int(match[3])


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_a_power_cut_leaves_whole_objects_and_all_that_were_acknowledged(tmp_path: Path) -> None:
    trace, root = tmp_path / "trace", tmp_path / "new" / "ck"
    kinds = "mkdir,openat,write,link,linkat,rename,unlink,fsync"
    strace = ["strace", "-f", "-y", "-s", "64", "-e", f"trace={kinds}", "-o", str(trace)]
    child = subprocess.run(
        [*strace, sys.executable, "-c", _PROGRAM, str(root)], capture_output=True, check=False
    )
    if b"ptrace" in child.stderr:
        pytest.skip("this machine doesn't let a process be traced")
    assert child.returncode == 0, child.stderr.decode()

    disk = ForgetfulDisk(tmp_path)
    acknowledged: list[str] = []
    for name, paths, result in calls(trace, root):
        if name == "done":
            acknowledged += paths
        else:
            disk.call(name, paths, result)
        objects = [p for p in disk.kept if str(root) in p and "/.tmp" not in p]
        for path in filter(disk.survives, objects):
            assert disk.is_whole(path), f"{path} would come back without all its data"
        for path in (f"{root}/{p}" for p in paths if name == "done"):
            assert disk.survives(path), f"{path} was acknowledged and would be lost"
            assert disk.kept[path] == disk.now[path], f"{path} would come back as it was before"
    assert len(acknowledged) == 5
