"""Makes ``tests`` importable from the tests of this folder; and what they share."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))


@pytest.fixture
def _plain_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of a pipeline that has no Spark: PySpark's would ask the JVM."""

    def thread(target: Callable[[], None], daemon: bool, name: str) -> threading.Thread:
        return threading.Thread(target=target, daemon=daemon, name=name)

    monkeypatch.setattr("holdfast.driver.running.InheritableThread", thread)
