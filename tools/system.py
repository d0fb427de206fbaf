"""What set-up says, and what it may ask of the operating system."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["ROOT", "TOOLS", "SetupError", "apt_install", "say"]

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / ".tools"


class SetupError(Exception):
    """Set-up can't go on by itself; the message says what a person can do."""


def say(text: str) -> None:
    """One line of progress, on standard error: standard output is the command's own."""
    print(f"\u25b8 {text}", file=sys.stderr, flush=True)


def apt_install(*packages: str, with_sudo: bool = False) -> bool:
    """Install packages of Debian or Ubuntu; False if that isn't possible here.

    Root does it directly. With ``with_sudo`` others do it too, if sudo asks for no password.
    """
    if shutil.which("apt-get") is None:
        return False
    prefix: list[str] = []
    if os.geteuid() != 0:
        if not with_sudo or shutil.which("sudo") is None:
            return False
        prefix = ["sudo", "-n"]
    say(f"installing {' '.join(packages)} with apt-get")
    apt = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    # Only standard error is kept for a failure's sake: apt tells a lot.
    for step in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        done = subprocess.run([*apt, *step], capture_output=True, text=True, check=False)
        if done.returncode != 0 and step[0] == "install":
            say(f"apt-get {step[0]} failed: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
            return False
    return True
