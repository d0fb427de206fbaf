from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.errors import StorageError
from holdfast.failpoints import arm, disarm
from holdfast.storage import LocalStorage
from holdfast.testing import StorageTests


class TestLocalStorage(StorageTests):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> LocalStorage:
        return LocalStorage(tmp_path / "new" / "ck")


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    disarm()


def files(root: Path) -> set[str]:
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()}


def test_nothing_but_a_write_creates_the_root(tmp_path: Path) -> None:
    root = tmp_path / "a" / "ck"
    storage = LocalStorage(root)
    assert not storage.exists("x")
    assert list(storage.list()) == []
    storage.delete(["x"])
    assert storage.sweep(0) == 0
    assert not (tmp_path / "a").exists()
    storage.put("x", b"1")
    assert files(root) == {"x"}


def test_foreign_files_are_not_listed(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.put("log/a", b"1")
    (tmp_path / ".DS_Store").write_bytes(b"")
    (tmp_path / "log" / ".a.swp").write_bytes(b"")
    (tmp_path / "log" / "a b").write_bytes(b"")
    assert [info.name for info in storage.list()] == ["log/a"]


@pytest.mark.parametrize("name", [".tmp", "runs", "runs/deep"])
def test_a_link_does_not_lead_out_of_the_directory(tmp_path: Path, name: str) -> None:
    """Else whoever made the directory could have files of its user deleted: sweeps know no names."""
    outside = tmp_path / "home"
    outside.mkdir()
    (outside / "3-thesis").write_text("years")
    os.utime(outside / "3-thesis", (0, 0))
    root = tmp_path / "ck"
    (root / name).parent.mkdir(parents=True)
    (root / name).symlink_to(outside)
    storage = LocalStorage(root)
    below = name if name != ".tmp" else "runs"
    attempts: list[Callable[[], object]] = [
        lambda: storage.put(f"{below}/3-new", b"x"),
        lambda: storage.delete([f"{name}/3-thesis"]) if below == name else storage.sweep(60),
        lambda: list(storage.list("runs/")) if below == name else storage.sweep(60),
    ]
    for attempt in attempts:
        with pytest.raises(StorageError, match="is a symbolic link"):
            attempt()
    assert files(outside) == {"3-thesis"}


def test_a_range_that_no_object_has_needs_no_memory(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.put("runs/1-a", b"abc")
    assert storage.get_range("runs/1-a", 1, 2**63) == b"bc"
    assert storage.get_range("runs/1-a", 2**64, 1) == b""


def test_a_folder_that_was_removed_is_made_again(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "ck")
    storage.put("log/a", b"1")
    (tmp_path / "ck" / "log" / "a").unlink()
    (tmp_path / "ck" / "log").rmdir()
    storage.put("log/b", b"2")
    assert storage.get("log/b") == b"2"


def test_no_space_left_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    arm("storage.local.write", "full")
    with pytest.raises(StorageError) as caught:
        storage.put_if_absent("runs/1-a", b"x" * 1000)
    assert "'runs/1-a'" in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert "No space left" in str(caught.value)
    assert "free some space" in str(caught.value.hint)
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno == errno.ENOSPC
    assert files(tmp_path) == set()
    assert storage.put_if_absent("runs/1-a", b"x" * 1000)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_missing_permission_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StorageError, match="permission"):
        LocalStorage(tmp_path / "ck").put("a", b"x")


def test_a_file_in_place_of_the_root_is_told(tmp_path: Path) -> None:
    (tmp_path / "ck").write_bytes(b"")
    storage = LocalStorage(tmp_path / "ck")
    assert not storage.exists("a")
    with pytest.raises(StorageError, match="a file stands where a folder is needed"):
        storage.put("a", b"x")
    with pytest.raises(StorageError, match="a file stands where a folder is needed"):
        LocalStorage(tmp_path / "ck" / "deeper").put("a", b"x")


def test_a_read_only_file_system_is_told() -> None:
    with pytest.raises(StorageError) as caught:
        LocalStorage("/proc/holdfast").put("a", b"x")
    assert "/proc/holdfast" in str(caught.value)


def test_an_object_and_a_folder_of_one_name_are_an_error_not_a_loss(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    storage.put("a/b", b"1")
    storage.put("c", b"2")
    for write in (storage.put, storage.put_if_absent):
        for name in ("a", "c/d"):
            with pytest.raises(StorageError, match="move it away"):
                write(name, b"3")
    assert files(tmp_path) == {"a/b", "c"}


@pytest.mark.parametrize("verb", ["put", "put_if_absent"])
@pytest.mark.parametrize("point", ["write", "before_link", "after_link"])
def test_a_killed_writer_leaves_a_whole_object_or_none(
    tmp_path: Path, verb: str, point: str
) -> None:
    program = (
        "import sys; from holdfast.storage import open_storage; "
        "getattr(open_storage(sys.argv[1]), sys.argv[2])('log/7', b'x' * 100_000)"
    )
    child = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path), verb],
        env={**os.environ, "HOLDFAST_FAILPOINTS": f"storage.local.{point}=kill"},
        check=False,
    )
    assert child.returncode == -signal.SIGKILL
    storage = LocalStorage(tmp_path)
    if point == "after_link":
        assert storage.get("log/7") == b"x" * 100_000
    else:
        assert list(storage.list()) == []
        assert storage.put_if_absent("log/7", b"y")
    left_over = len(files(tmp_path)) - 1
    assert left_over == (0 if (verb, point) == ("put", "after_link") else 1)
    assert storage.sweep(older_than_s=3600) == 0
    assert storage.sweep(older_than_s=0) == left_over
    assert files(tmp_path) == {"log/7"}


def test_a_writer_whose_temporary_file_was_swept_fails_and_shows_nothing(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)

    def sweep() -> None:
        assert storage.sweep(0) == 1

    for write in (storage.put, storage.put_if_absent):
        arm("storage.local.before_link", sweep)
        with pytest.raises(StorageError, match="'log/7'"):
            write("log/7", b"x")
        assert list(storage.list()) == []


def test_a_failure_after_the_link_is_reported_though_the_object_is_there(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    arm("storage.local.after_link", "fail")
    with pytest.raises(StorageError):
        storage.put_if_absent("log/7", b"x")
    assert storage.get("log/7") == b"x"
    assert files(tmp_path) == {"log/7"}
