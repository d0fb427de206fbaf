"""The examples run by name, and print what the documentation shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tools import run

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py") if path.stem != "common")
PAGE = ROOT / "docs" / "examples.md"


def shown_outputs() -> dict[str, str]:
    """What the page shows under each ``$ ./run example NAME``."""
    pattern = r"^```text\n\$ \./run example (\w+)\n(.*?)^```$"
    found = re.findall(pattern, PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return dict(found)


def test_the_page_shows_every_example() -> None:
    assert sorted(shown_outputs()) == EXAMPLES
    assert len(EXAMPLES) == 4


def test_the_examples_are_listed_when_none_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["example"]) == 0
    assert ", ".join(EXAMPLES) in capsys.readouterr().out


def test_an_unknown_example_is_refused_with_those_that_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run.main(["example", "common"]) == 2
    assert ", ".join(EXAMPLES) in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("quick_java")
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_the_page_shows(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{name}.py")],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert done.stdout.strip() == shown_outputs()[name].strip()
