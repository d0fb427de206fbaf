"""What every test shares: one Spark session, and what happens when a component is missing.

It stands in the root, not in ``tests``, because the examples in ``src`` are tests too.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.doctest import DoctestItem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A program that a test starts may crash in native code: then it says where.
os.environ.setdefault("PYTHONFAULTHANDLER", "1")

Require = Callable[[str, str], None]
Report = pytest.CollectReport | pytest.TestReport


def in_ci() -> bool:
    """Whether this is continuous integration, where nothing may be skipped for want of a part."""
    return os.environ.get("CI", "").lower() in ("1", "true", "yes")


def require_component(component: str, how_to_install: str) -> None:
    """Go on only if a program (on PATH) or Python package named ``component`` is there.

    Otherwise the test is skipped, saying what to install; in continuous integration it fails,
    because a suite that quietly leaves out what it can't run proves nothing.
    """
    if shutil.which(component) is None and find_spec(component) is None:
        text = f"{component} is missing. What to do: {how_to_install}"
        if in_ci():
            pytest.fail(text, pytrace=False)
        pytest.skip(text)


@pytest.fixture(scope="session")
def require() -> Require:
    """:func:`require_component`, for tests that can't import this file."""
    return require_component


def _no_import_skips(report: Report) -> Report:
    """Turn what ``pytest.importorskip`` skipped into a failure, in continuous integration."""
    text = str(report.longrepr)
    if in_ci() and report.outcome == "skipped" and "could not import" in text:
        report.outcome = "failed"
        report.longrepr = text
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Report, Report]:
    """For modules that skip themselves."""
    return _no_import_skips((yield))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Report, Report]:
    """For single tests."""
    return _no_import_skips((yield))


@pytest.fixture(scope="session")
def spark_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where Spark's JVM is started: it takes relative paths from there, wherever Python is."""
    return tmp_path_factory.mktemp("spark-folder")


@pytest.fixture(scope="session")
def spark(spark_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one Spark session of the test run: a process can hold only one SparkContext."""
    require_component("pyspark", "./run setup")
    require_component("java", "./run setup")
    from pyspark.sql import SparkSession

    import holdfast as hf

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    scratch = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.driver.memory": "2g",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
    }
    builder = SparkSession.builder.master("local[2]").appName("holdfast-tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    from tests import quick_java

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(spark_folder)
        patch.setenv(quick_java.VARIABLE, quick_java.known_options())
        session = hf.configure(builder).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def quick_java() -> Iterator[None]:
    """Spark drivers that tests start as processes begin sooner; see ``tests/quick_java.py``."""
    from tests import quick_java

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(quick_java.VARIABLE, quick_java.options())
        yield


Surroundings = Callable[[str], dict[str, Any]]


@pytest.fixture
def surroundings(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    spark_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Surroundings]:
    """``surroundings(code)``: an empty folder to work in, and the names an example may use.

    That is ``spark``, if the code speaks of it. Queries that an example leaves running are stopped.
    """
    session: SparkSession | None = None

    def enter(code: str) -> dict[str, Any]:
        nonlocal session
        if "spark" not in code.lower():
            monkeypatch.chdir(tmp_path)
            return {}
        session = request.getfixturevalue("spark")
        for old in spark_folder.iterdir():
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        monkeypatch.chdir(spark_folder)
        return {"spark": session}

    yield enter
    for query in session.streams.active if session is not None else ():
        query.stop()


@pytest.fixture(autouse=True)
def _surroundings_of_doctests(request: pytest.FixtureRequest) -> None:
    if isinstance(request.node, DoctestItem):
        code = "".join(example.source for example in request.node.dtest.examples)
        enter: Surroundings = request.getfixturevalue("surroundings")
        request.getfixturevalue("doctest_namespace").update(enter(code))
