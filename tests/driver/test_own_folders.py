"""Folders of killed processes go; what others have under names that begin alike stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from holdfast.driver.own_folders import OwnFolders


def test_a_sweep_takes_folders_of_killed_processes_and_nothing_else(tmp_path: Path) -> None:
    made = f"""
import os, signal
from pathlib import Path
from holdfast.driver.own_folders import OwnFolders
folder = OwnFolders(Path({str(tmp_path)!r}), "work-").make()
(folder / "file").write_text("x")
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", made], check=False).returncode == -9
    (killed,) = tmp_path.iterdir()
    mine = OwnFolders(tmp_path, "work-")
    alive = mine.make()
    # As tempfile.mkdtemp(prefix="work-") names them, which nobody locks.
    unlocked = tmp_path / "work-k3p9x_a1"
    unlocked.mkdir()
    (tmp_path / f"work-{'0' * 32}").write_text("no folder")
    OwnFolders(tmp_path, "work-").sweep()
    assert sorted(tmp_path.iterdir()) == sorted([alive, unlocked, tmp_path / f"work-{'0' * 32}"])
    assert killed not in tmp_path.iterdir()
