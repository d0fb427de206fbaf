"""uv, the installer, in a folder of its own: pinned, hashed, and told what pip was told."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tools.system import ROOT, TOOLS, SetupError, apt_install, say

__all__ = ["PIN", "install_uv", "uv_variables"]

PIN = ROOT / "tools" / "uv.txt"
HOME = TOOLS / "uv"
# Whatever the user's pip is set to, here it installs into one folder of the repository.
_PIP = ("--disable-pip-version-check", "--no-input", "--quiet")
_PIP_VARIABLES = {"PIP_REQUIRE_VIRTUALENV": "0", "PIP_USER": "0"}


def install_uv() -> Path:
    """The pinned uv; installed if it isn't there.

    Some machines have no ``ensurepip`` (Debian without python3-venv), some no pip, and some a pip
    that may not touch the system's packages: a virtual environment or a plain target folder
    serves them all.
    """
    uv, stamp = HOME / "bin" / "uv", HOME / "pin"
    if uv.exists() and stamp.exists() and stamp.read_bytes() == PIN.read_bytes():
        return uv
    say(f"installing {PIN.read_text().split()[0]} into {HOME.relative_to(ROOT)}")
    ways: tuple[tuple[str, Callable[[], bool]], ...] = (
        ("a virtual environment", _with_venv),
        ("pip --target", _with_target),
        ("apt-get install python3-venv", lambda: apt_install("python3-venv") and _with_venv()),
    )
    for _, way in ways:
        shutil.rmtree(HOME, ignore_errors=True)
        if way() and uv.exists():
            stamp.write_bytes(PIN.read_bytes())
            return uv
    tried = "; ".join(name for name, _ in ways)
    raise SetupError(
        f"could not install uv (tried {tried}). Install pip or venv for {sys.executable} "
        "(for example: sudo apt-get install python3-venv) and look at the messages above"
    )


def _with_venv() -> bool:
    # Asked of a new process: it may have been installed a moment ago.
    if _quiet(sys.executable, "-c", "import ensurepip, venv") != 0:
        return False
    if _quiet(sys.executable, "-m", "venv", "--clear", str(HOME)) != 0:
        return False
    return _pip(HOME / "bin" / "python")


def _with_target() -> bool:
    if _quiet(sys.executable, "-m", "pip", "--version") != 0:
        return False
    return _pip(Path(sys.executable), "--target", str(HOME))


def _pip(python: Path, *options: str) -> bool:
    command = [str(python), "-m", "pip", "install", *_PIP, *options]
    command += ["--require-hashes", "-r", str(PIN)]
    done = subprocess.run(
        command, env=os.environ | _PIP_VARIABLES, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        say(f"pip could not: {done.stderr.strip()}")
    return done.returncode == 0


def _quiet(*command: str) -> int:
    return subprocess.run(command, capture_output=True, check=False).returncode


def uv_variables(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables for uv: what pip knows of mirrors and certificates holds for uv as well.

    uv does not read pip's configuration, and a company's machine often has nothing else.
    """
    variables = dict(os.environ if environ is None else environ)
    settings = _pip_settings()
    for pip_name, uv_names, translate in _TRANSLATIONS:
        value = translate(settings.get(pip_name, ""))
        if value and not any(name in variables for name in uv_names):
            variables[uv_names[0]] = value
    variables.setdefault("UV_HTTP_TIMEOUT", "120")
    if not os.access(Path.home(), os.W_OK):
        variables.setdefault("UV_CACHE_DIR", str(TOOLS / "cache"))
    return variables


def _pip_settings() -> dict[str, str]:
    """pip's settings from its files and variables, by long option name."""
    python = HOME / "bin" / "python"
    listed = subprocess.run(
        [python if python.exists() else sys.executable, "-m", "pip", "config", "list"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return parse_pip_settings(listed.stdout)


def parse_pip_settings(listing: str) -> dict[str, str]:
    """Parse ``pip config list``; what is said for ``install`` and in variables comes last."""
    ranks = {"global": 0, "install": 1, ":env:": 2}
    found: list[tuple[int, str, str]] = []
    for line in listing.splitlines():
        name, equals, value = line.partition("=")
        section, _, option = name.rpartition(".")
        if equals and section in ranks:
            found.append((ranks[section], option, str(ast.literal_eval(value))))
    return {option: value for _, option, value in sorted(found)}


def _with_commas(value: str) -> str:
    return ",".join(value.split())


def _folders_that_exist(value: str) -> str:
    return ",".join(v for v in value.split() if "://" in v or Path(v).is_dir())


_TRANSLATIONS: tuple[tuple[str, tuple[str, ...], Callable[[str], str]], ...] = (
    ("index-url", ("UV_DEFAULT_INDEX", "UV_INDEX_URL"), str.strip),
    ("extra-index-url", ("UV_INDEX", "UV_EXTRA_INDEX_URL"), lambda v: " ".join(v.split())),
    ("find-links", ("UV_FIND_LINKS",), _folders_that_exist),
    ("trusted-host", ("UV_INSECURE_HOST",), lambda v: " ".join(v.split())),
    ("cert", ("SSL_CERT_FILE",), str.strip),
    ("timeout", ("UV_HTTP_TIMEOUT",), str.strip),
    ("default-timeout", ("UV_HTTP_TIMEOUT",), str.strip),
)
