"""A test whose component is missing is skipped at home and fails in continuous integration."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TESTS = {
    "program": "def test_it(require): require('no-such-program', 'apt-get install it')",
    "package": "import pytest\ndef test_it(): pytest.importorskip('no_such_package')",
    "module": "import pytest\npytest.importorskip('no_such_package')\ndef test_it(): pass",
}


def run_test(tmp_path: Path, source: str, ci: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "test_it.py").write_text(source)
    variables = os.environ | {"CI": ci, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-rs", "-c", os.devnull, "-p", "conftest"]
    return subprocess.run(
        [*command, "--rootdir", str(tmp_path), str(tmp_path)],
        env=variables, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("kind", TESTS)
def test_at_home_it_is_skipped(kind: str, tmp_path: Path) -> None:
    done = run_test(tmp_path, TESTS[kind], ci="")
    assert "1 skipped" in done.stdout
    assert "no-such-program is missing. What to do: apt-get install it" in done.stdout or (
        kind != "program"
    )


@pytest.mark.parametrize("kind", TESTS)
def test_in_continuous_integration_it_fails(kind: str, tmp_path: Path) -> None:
    done = run_test(tmp_path, TESTS[kind], ci="true")
    assert done.returncode != 0
    assert "skipped" not in done.stdout.splitlines()[-1]


def test_what_is_there_is_used(tmp_path: Path) -> None:
    source = "def test_it(require): require('sh', ''); require('json', '')"
    assert "1 passed" in run_test(tmp_path, source, ci="true").stdout
