"""What follows from a lab's name alone, and what it says to those it can't serve."""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
import subprocess
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

import bench.lab
from bench.lab import Lab, network
from bench.lab.__main__ import main
from bench.lab.names import Place, address_of, enter_command, hosts_file, namespace_of, worker_names
from bench.lab.processes import commands_in, descendants
from bench.lab.spark import SparkMaster, SparkWorker, write_conf
from bench.lab.state import Setup
from bench.lab.teardown import mounts_under
from holdfast.errors import ConfigurationError, InputError

MODULES = [f"bench.lab.{module.name}" for module in pkgutil.iter_modules(bench.lab.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_are_right(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("name", ["lab", "t-1", "t-4194304-17", "z"])
def test_every_host_has_an_address_of_its_own_in_the_range_for_tests(name: str) -> None:
    hosts = ("nn", "drv", *worker_names(200))
    addresses = {ip_address(address_of(name, host)) for host in hosts}
    assert len(addresses) == len(hosts)
    assert all(address in ip_network("198.18.0.0/15") for address in addresses)
    assert len({str(address).rpartition(".")[0] for address in addresses}) == 1


def test_the_hosts_file_knows_every_host_by_its_address() -> None:
    lines = [line.split() for line in hosts_file("lab", ["nn", "h1"]).splitlines()]
    assert lines[0] == ["127.0.0.1", "localhost"]
    assert lines[1:] == [[address_of("lab", host), host] for host in ("nn", "h1")]


def test_a_command_is_run_as_it_is(tmp_path: Path) -> None:
    place = Place(tmp_path / "a folder")
    command = ["echo", "$HOME", "a b", "'"]
    line = enter_command("lab", "h1", place, command)
    assert line[-len(command) :] == command
    assert str(place.disk("h1")) in line
    assert str(place.disk("h2")) not in line


def test_workers_are_named_after_their_host_so_that_placement_finds_them() -> None:
    worker = SparkWorker(Place(Path("/lab")), "h2", "198.18.0.12", [], 2, "1g")
    arguments = worker.arguments()
    assert arguments[arguments.index("--host") + 1] == "h2"
    assert arguments[-1] == "spark://nn:7077"
    assert worker.log == Path("/lab/logs/sparkworker-h2.log")
    assert "7077" in SparkMaster(Place(Path("/lab")), "nn", "198.18.0.2", []).arguments()


def test_executors_share_a_host_evenly(tmp_path: Path) -> None:
    settings = Lab(tmp_path, cores=4, memory="2g", executors_per_host=2).spark_conf()
    assert settings["spark.executor.cores"] == "2"
    assert settings["spark.executor.memory"] == "1024m"
    write_conf(tmp_path, settings)
    assert "spark.master spark://nn:7077\n" in (tmp_path / "spark-defaults.conf").read_text()


def test_a_setup_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    setup = Setup("lab", ("h1", "h2"), hdfs=True, rate="1mbit", racks={"h1": "/r"})
    setup.save(tmp_path / "lab.json")
    assert Setup.load(tmp_path / "lab.json") == setup
    assert setup.with_worker("h3").workers == ("h1", "h2", "h3")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"hosts": 0}, "a lab of 0 hosts"),
        ({"executors_per_host": 3}, "3 executors can't share 2 cores"),
        ({"racks": {"drv": "/r"}}, "drv"),
        ({"name": "No Name"}, "can't be the name of a lab"),
    ],
)
def test_what_makes_no_sense_is_refused(
    tmp_path: Path, options: dict[str, object], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        Lab(tmp_path, **options)  # type: ignore[arg-type]


def test_unknown_hosts_and_memory_and_missing_hdfs_are_refused(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    with pytest.raises(InputError, match="no host 'h7'"):
        lab.disk("h7")
    with pytest.raises(InputError, match="no HDFS"):
        _ = lab.hdfs_url
    with pytest.raises(InputError, match="no amount of memory"):
        Lab(tmp_path, memory="much").spark_conf()


def test_others_than_root_are_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ConfigurationError, match=r"needs root.*sudo"):
        Lab(tmp_path / "lab").up()
    with pytest.raises(ConfigurationError, match="needs root"), Lab(tmp_path / "lab"):
        pass
    assert not (tmp_path / "lab").exists()
    for command in (["up"], ["down"], ["status"], ["kill", "h1"], ["exec", "h1", "true"]):
        assert main(["--name", "nobodys", *command]) == 1
        assert "needs root" in capsys.readouterr().err


def test_missing_programs_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"ip and tc.*iproute2"):
        network.check_allowed(user=0)


def test_where_there_is_no_lab_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr("bench.lab.network.shutil.which", lambda name: name)
    assert main(["--name", "nobodys", "status"]) == 1
    assert "there is no lab" in capsys.readouterr().err


def test_only_a_labs_own_namespaces_are_its(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a-nn", "a-sw", "a-h1", "a-h12", "a-b-h1", "b-h1", "a-h1-nn", "a-hx", "xa-h1"):
        (tmp_path / name).touch()
    monkeypatch.setattr(network, "_NAMESPACES", tmp_path)
    assert network.namespaces_of("a") == ["a-h1", "a-h12", "a-nn", "a-sw"]
    assert network.namespaces_of("a-b") == [namespace_of("a-b", "h1")]


def test_processes_are_found_with_their_children() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 100 & echo; wait"], stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        shell.stdout.readline()
        family = descendants([shell.pid])
        assert len(family) == 2
        assert family[0] == shell.pid
        for pid in family:
            os.kill(pid, 9)
    assert commands_in("no-such-namespace") == {}


def test_nothing_is_mounted_in_an_ordinary_folder(tmp_path: Path) -> None:
    assert mounts_under(tmp_path) == []
    assert Path("/proc") in mounts_under(Path("/"))
