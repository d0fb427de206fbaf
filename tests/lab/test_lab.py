"""A lab comes up, its hosts are apart, faults have their effects, and nothing is left of it."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.lab import Lab
from bench.lab.network import namespaces_of
from bench.lab.spark import EXECUTOR, SparkWorker
from bench.lab.teardown import mounts_under
from bench.services.daemon import wait_until
from bench.services.hadoop import DataNode

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("lab_parts")]

ROOT = Path(__file__).resolve().parent.parent.parent
HERE = Path(__file__).resolve().parent
MB = 1 << 20
SIZE = 8 * MB


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("lab")
    racks = {"h1": "/r1", "h2": "/r2"}
    with Lab(folder, hosts=2, hdfs=True, cores=1, memory="512m", racks=racks) as lab:
        print(f"up in {lab.up_seconds:.1f} s")
        yield lab


def python(lab: Lab, host: str, program: str, *arguments: str) -> None:
    command = [sys.executable, str(HERE / program), *arguments]
    assert lab.run(host, command).wait(60) == 0


def running(lab: Lab, host: str, text: str) -> set[int]:
    return {pid for pid, command in lab.commands(host).items() if text in command}


def processes_speaking_of(folder: Path) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_text()
        except OSError:
            continue
        if str(folder) in command and path.parent.name != str(os.getpid()):
            found.append(command)
    return found


def test_every_host_has_its_worker_its_datanode_and_its_rack(lab: Lab) -> None:
    assert lab.alive_workers() == lab.live_datanodes() == ["h1", "h2"]
    assert lab.racks() == {"h1": "/r1", "h2": "/r2"}


def test_a_job_runs_on_all_hosts_each_with_its_own_disk_and_executors_can_be_killed(
    lab: Lab,
) -> None:
    command = [sys.executable, str(HERE / "spark_program.py"), str(lab.local_disk)]
    with lab.run("drv", command, stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        assert set(json.loads(driver.stdout.readline())) == {"h1", "h2"}
        for host in lab.workers:
            assert [path.name for path in lab.disk(host).iterdir()] == [f"visited-{host}"]
        assert not list(lab.local_disk.iterdir())

        worker, before = (running(lab, "h1", text) for text in (SparkWorker.main, EXECUTOR))
        assert lab.kill_executors("h1") == 1
        wait_until(lambda: bool(running(lab, "h1", EXECUTOR) - before), "a new executor")
        assert running(lab, "h1", SparkWorker.main) == worker
        lab.kill("drv")
        assert driver.wait() == -signal.SIGKILL
    wait_until(lambda: not running(lab, "h1", EXECUTOR), "the end of the executors")


def test_a_replica_on_the_host_is_read_without_the_wire(lab: Lab) -> None:
    python(lab, "h1", "hdfs_program.py", "write", lab.hdfs_url, "/x", str(SIZE))
    moved = {}
    for host in lab.workers:
        before, _ = lab.bytes(host)
        python(lab, host, "hdfs_program.py", "read", lab.hdfs_url, "/x", str(SIZE))
        moved[host] = lab.bytes(host)[0] - before
    assert moved["h1"] < MB / 4
    assert moved["h2"] >= SIZE


def test_cables_are_slowed_and_freed(lab: Lab) -> None:
    def limits() -> list[bool]:
        command = ["tc", "-n", f"{lab.name}-h1", "qdisc", "show", "dev", "eth0"]
        ours = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        command = ["tc", "-n", f"{lab.name}-sw", "qdisc", "show", "dev", "p-h1"]
        theirs = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return ["rate 50Mbit" in ours, "rate 50Mbit" in theirs]

    assert limits() == [False, False]
    lab.rate("50mbit")
    assert limits() == [True, True]
    lab.rate(None)
    lab.rate(None)
    assert limits() == [False, False]


def test_a_cut_host_lives_on_unheard_and_comes_back(lab: Lab) -> None:
    before = lab.commands("h2")
    lab.cut("h2")
    assert lab.is_cut("h2")
    wait_until(lambda: lab.alive_workers() == ["h1"], "Spark notices", 60)
    wait_until(lambda: lab.live_datanodes() == ["h1"], "HDFS notices", 60)
    assert lab.commands("h2").keys() == before.keys()
    lab.heal("h2")
    wait_until(lambda: lab.alive_workers() == ["h1", "h2"], "Spark has it back", 60)
    wait_until(lambda: lab.live_datanodes() == ["h1", "h2"], "HDFS has it back", 60)


def test_a_killed_host_is_gone_but_for_its_disk_and_starts_again(lab: Lab) -> None:
    (lab.disk("h2") / "kept").write_text("as it was")
    lab.kill("h2")
    assert lab.commands("h2") == {}
    wait_until(lambda: lab.alive_workers() == ["h1"], "Spark notices", 60)
    lab.start("h2")
    wait_until(lambda: lab.alive_workers() == ["h1", "h2"], "Spark has it back", 60)
    assert lab.live_datanodes() == ["h1", "h2"]
    with lab.run("h2", ["cat", str(lab.local_disk / "kept")], stdout=subprocess.PIPE) as cat:
        assert cat.communicate()[0] == "as it was"


def test_a_datanode_dies_alone_and_starts_again(lab: Lab) -> None:
    worker = running(lab, "h2", SparkWorker.main)
    lab.kill_datanode("h2")
    wait_until(lambda: not running(lab, "h2", DataNode.main), "the end of the DataNode")
    wait_until(lambda: lab.live_datanodes() == ["h1"], "HDFS notices", 60)
    assert lab.copies_to_make() == 0
    python(lab, "h1", "hdfs_program.py", "write", lab.hdfs_url, "/y", "100", "2")
    wait_until(lambda: lab.copies_to_make() == 1, "HDFS counts a missing copy", 60)
    lab.start("h2")
    assert running(lab, "h2", SparkWorker.main) == worker
    assert lab.live_datanodes() == ["h1", "h2"]
    wait_until(lambda: lab.copies_to_make() == 0, "HDFS makes the missing copy", 60)


def test_a_host_joins(lab: Lab) -> None:
    assert lab.add_host() == "h3"
    wait_until(lambda: lab.alive_workers() == ["h1", "h2", "h3"], "Spark knows it", 60)
    assert lab.live_datanodes() == ["h1", "h2", "h3"]
    assert Lab.attach(lab.folder).workers == ("h1", "h2", "h3")


def test_nothing_is_left_and_a_small_disk_fills(tmp_path: Path) -> None:
    with Lab(tmp_path, hosts=1, disk_size="4m") as lab:
        name = lab.name
        assert namespaces_of(name)
        assert mounts_under(tmp_path)
        with pytest.raises(OSError, match="No space") as full:
            (lab.disk("h1") / "large").write_bytes(bytes(5 * MB))
        assert full.value.errno == errno.ENOSPC
    assert namespaces_of(name) == []
    assert mounts_under(tmp_path) == []
    assert processes_speaking_of(tmp_path) == []
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == [
        "conf", "disk", "logs",
    ]  # fmt: skip


OWNER = """
import sys, signal
from bench.lab import Lab
with Lab(sys.argv[1], hosts=1, disk_size="4m") as lab:
    print(lab.name, flush=True)
    signal.pause()
"""


def test_a_lab_goes_with_its_owner_also_by_sigkill(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as owner:
        assert owner.stdout is not None
        name = owner.stdout.readline().strip()
        assert namespaces_of(name)
        owner.kill()
    wait_until(lambda: not processes_speaking_of(tmp_path), "the end of every process")
    assert namespaces_of(name) == []
    assert mounts_under(tmp_path) == []


def test_what_a_crash_left_goes_when_a_lab_of_that_name_is_made_or_taken_down(
    tmp_path: Path,
) -> None:
    name = f"t-{os.getpid()}-crashed"
    crashed = Lab(tmp_path, hosts=1, name=name)
    crashed._make()
    left = crashed.run("h1", ["sleep", "1000"])
    wait_until(lambda: "sleep 1000" in crashed.commands("h1").values(), "the program has entered")
    Lab(tmp_path, hosts=1, name=name).down()
    assert left.wait(10) == -signal.SIGKILL
    assert namespaces_of(name) == []


def test_a_program_that_is_only_just_being_started_dies_with_its_host(tmp_path: Path) -> None:
    lab = Lab(tmp_path, hosts=1)
    lab._make()
    try:
        started = [lab.run("h1", ["sleep", "1000"]) for _ in range(5)]
        lab.kill("h1")
        assert [program.wait(10) for program in started] == [-signal.SIGKILL] * 5
    finally:
        lab.down()


def test_a_lab_by_hand(tmp_path: Path) -> None:
    name = f"t-{os.getpid()}-hand"

    def lab(*arguments: str) -> str:
        command = [sys.executable, "-m", "bench.lab", "--name", name, "--folder", str(tmp_path)]
        done = subprocess.run(
            [*command, *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
        )
        return done.stdout

    try:
        assert "spark://nn:7077" in lab("up", "--hosts", "1", "--rate", "100mbit")
        assert "Worker  (known to Spark)" in lab("status")
        assert lab("exec", "h1", "hostname") == "h1\n"
        lab("rate", "none")
        lab("cut", "h1")
        assert " cut " in lab("status")
        lab("heal", "h1")
        lab("kill", "h1")
        assert "Worker" not in lab("status")
        lab("start", "h1")
        assert "Worker  (known to Spark)" in lab("status")
    finally:
        lab("down")
    assert namespaces_of(name) == []
    assert processes_speaking_of(tmp_path) == []
