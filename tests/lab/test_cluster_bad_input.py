"""A ``local_dir`` or a Python that hosts can't work with: which host, what is wrong, what to do."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from bench.lab import Lab
from tests.lab.cluster_faults import ballast, fill
from tests.lab.cluster_support import Cluster, Driver, DriverEndedError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.usefixtures("lab_parts")]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("bad-input")
    with Lab(folder / "lab", hosts=2, cores=1, memory="512m", disk_size="8m") as lab:
        yield Cluster(lab, folder / "work", checkpoint_dir=folder / "ck")


@pytest.fixture(scope="module")
def driver(cluster: Cluster) -> Iterator[Driver]:
    cluster.add(2000, 1000)
    started = cluster.begin(program="bad_input_program.py")
    started.answer()
    yield started
    started.stop()


def refused(driver: Driver, command: str) -> DriverEndedError:
    with pytest.raises(DriverEndedError) as error:
        driver.ask(command)
    return error.value


def test_a_local_dir_that_one_host_cannot_write(cluster: Cluster, driver: Driver) -> None:
    disk = str(cluster.lab.disk("h2"))
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    try:
        error = refused(driver, "start")
    finally:
        subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
    assert error.kind == "configuration"
    words = str(error)
    assert "local_dir can't be used on every host: h2: Read-only file system" in words
    assert "h1" not in words
    assert "each host's own disk" in words


def test_a_local_dir_that_is_full_on_one_host(cluster: Cluster, driver: Driver) -> None:
    fill(ballast(cluster.lab, "h1"))
    try:
        error = refused(driver, "start")
    finally:
        ballast(cluster.lab, "h1").unlink()
    assert error.kind == "configuration"
    assert "h1: No space left on device" in str(error)


def test_a_local_dir_that_fills_up_while_the_pipeline_runs(
    cluster: Cluster, driver: Driver
) -> None:
    """The pipeline ends and says so; when there is room again it continues, and nothing is lost."""
    driver.ask("start")
    driver.ask("run")
    for host in cluster.lab.workers:
        fill(ballast(cluster.lab, host))
    cluster.add(20_000, 10_000)
    try:
        error = refused(driver, "run")
    finally:
        for host in cluster.lab.workers:
            ballast(cluster.lab, host).unlink()
    assert error.kind == "processing"
    assert "No space left on device" in str(error)
    driver.ask("start")
    driver.ask("run")
    cluster.check("drv")


def test_an_executor_without_a_package(driver: Driver) -> None:
    error = refused(driver, "packages")
    assert error.kind == "configuration"
    for words in (
        "h1 (",
        "h2 (",
        "no-such-package is missing",
        "pip install 'no-such-package>=1.2'",
    ):
        assert words in str(error)
