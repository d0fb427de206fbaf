"""HDFS, on a real NameNode with two DataNodes."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from bench.services.daemon import wait_until
from bench.services.hadoop import LocalHdfs
from holdfast.errors import StorageError
from holdfast.failpoints import arm, disarm
from holdfast.storage import HdfsStorage, NotFoundError, open_storage
from holdfast.storage.block_locations import WebHdfsLocator
from holdfast.testing import StorageTests

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("hdfs_parts")]
_numbers = itertools.count()
Make = Callable[[str], HdfsStorage]


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalHdfs]:
    folder = tmp_path_factory.mktemp("hdfs")
    with LocalHdfs(folder, datanodes=2, replication=2, permissions=True) as running:
        yield running


@pytest.fixture
def make(hdfs: LocalHdfs) -> Make:
    """``make(options)``: an empty storage."""

    def make(options: str = "") -> HdfsStorage:
        return HdfsStorage(f"{hdfs.url}/t/ck-{next(_numbers)}?web={hdfs.web}{options}")

    return make


@pytest.fixture
def storage(make: Make) -> HdfsStorage:
    return make("&timeout=5s")


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    disarm()


class TestHdfsStorage(StorageTests):
    @pytest.fixture
    def storage(self, make: Make) -> HdfsStorage:
        return make("")


def temporaries(storage: HdfsStorage) -> int:
    try:
        return len(list(storage._client().list_status(storage.place.path(".tmp"))))
    except FileNotFoundError:
        return 0


def leaves_nothing(storage: HdfsStorage) -> None:
    """A given-up attempt may still be about to create its file: the sweep after that removes it."""

    def swept() -> bool:
        storage.sweep(older_than_s=0)
        return temporaries(storage) == 0

    wait_until(swept, "no temporary file is left")


# Where objects are


def test_locations_are_the_hosts_of_every_replica(make: Make) -> None:
    everywhere, once = make("&replication=2"), make("&replication=1")
    everywhere.put("runs/1-a", b"x" * 1000)
    once.put("runs/1-a", b"x" * 1000)
    assert sorted(everywhere.locations("runs/1-a")) == ["h1", "h2"]
    assert once.locations("runs/1-a") in (("h1",), ("h2",))


def test_an_object_below_the_block_size_is_one_block(make: Make) -> None:
    whole, cut = make(""), make("&block=1MiB&replication=2")
    for storage in (whole, cut):
        storage.put("a", bytes(3 * 2**20 - 1))
        assert storage.get("a") == bytes(3 * 2**20 - 1)
        assert storage.get_range("a", 2**20 - 2, 4) == bytes(4)
    assert isinstance(whole.locator, WebHdfsLocator)
    assert len(whole.locator(whole.place.path("a"))) == 1
    assert len(whole.locator(cut.place.path("a"))) == 3
    assert sorted(cut.locations("a")) == ["h1", "h2"]


def test_a_locator_of_ones_own_is_asked(storage: HdfsStorage) -> None:
    asked = []

    def locator(path: str) -> list[list[str]]:
        asked.append(path)
        return [["h7", "h8"], ["h8", "h9"]]

    storage.locator = locator
    assert storage.locations("runs/1-a") == ("h8",)
    assert asked == [storage.place.path("runs/1-a")]


def test_locations_that_nobody_tells_are_a_warning_and_none(
    storage: HdfsStorage, caplog: pytest.LogCaptureFixture
) -> None:
    storage.put("a", b"x")
    storage.locator = WebHdfsLocator("http://127.0.0.1:1")
    assert storage.locations("a") == storage.locations("a") == ()
    assert caplog.text.count("which hosts hold a") == 1


# Writers that die, stall or race


@pytest.mark.parametrize("verb", ["put", "put_if_absent"])
@pytest.mark.parametrize("point", ["write", "before_rename", "after_rename"])
def test_a_killed_writer_leaves_a_whole_object_or_none(
    storage: HdfsStorage, verb: str, point: str
) -> None:
    program = (
        "import sys; from holdfast.storage import open_storage; "
        "getattr(open_storage(sys.argv[1]), sys.argv[2])('log/7', b'x' * 100_000)"
    )
    child = subprocess.run(
        [sys.executable, "-c", program, storage.url, verb],
        env={**os.environ, "HOLDFAST_FAILPOINTS": f"storage.hdfs.{point}=kill"},
        check=False,
    )
    assert child.returncode == -signal.SIGKILL
    if point == "after_rename":
        assert storage.get("log/7") == b"x" * 100_000
    else:
        assert list(storage.list()) == []
        assert storage.put_if_absent("log/7", b"y")
    left_over = 0 if point == "after_rename" else 1
    assert storage.sweep(older_than_s=3600) == 0
    assert storage.sweep(older_than_s=0) == left_over
    assert temporaries(storage) == 0
    assert [info.name for info in storage.list()] == ["log/7"]


def test_a_process_ends_well_while_threads_call_hdfs(storage: HdfsStorage) -> None:
    # Python takes its time at the end: calls come back meanwhile, and others would begin.
    program = """
import atexit, sys, threading, time
refused = threading.Event()
atexit.register(refused.wait, 60)  # registered before the handler of storage, so it runs after it
from holdfast.errors import StorageError
from holdfast.storage import open_storage

class Slow:
    def __del__(self):
        time.sleep(1)

def call_for_ever():
    try:
        while True:
            storage.exists("log/7")
            called.release()
    except StorageError as error:
        print(error)
        refused.set()

sys.modules["slow"] = Slow()
storage, called = open_storage(sys.argv[1]), threading.Semaphore(0)
for _ in range(4):
    threading.Thread(target=call_for_ever, daemon=True).start()
for _ in range(20):
    called.acquire()
"""
    child = subprocess.run(
        [sys.executable, "-c", program, storage.url], stdout=subprocess.PIPE, text=True, check=False
    )
    assert child.returncode == 0
    assert "the process is ending" in child.stdout


def test_a_writer_whose_temporary_file_was_swept_writes_again(storage: HdfsStorage) -> None:
    swept: list[int] = []
    for number, write in enumerate((storage.put, storage.put_if_absent)):
        arm("storage.hdfs.before_rename", lambda: swept.append(storage.sweep(0)))
        write(f"log/{number}", b"x")
        assert storage.get(f"log/{number}") == b"x"
    assert swept == [1, 1]


def test_a_rename_whose_answer_was_lost_counts_as_ours(storage: HdfsStorage) -> None:
    arm("storage.hdfs.after_rename", "fail")
    assert storage.put_if_absent("log/7", b"mine")
    assert storage.get("log/7") == b"mine"
    assert temporaries(storage) == 0


def test_another_writers_object_does_not_count_as_ours(storage: HdfsStorage) -> None:
    other = open_storage(storage.url)

    def lose() -> None:
        disarm()
        assert other.put_if_absent("log/7", b"mine")  # the same bytes, but not from here
        raise OSError("lost")

    arm("storage.hdfs.before_rename", lose)
    assert not storage.put_if_absent("log/7", b"mine")
    assert temporaries(storage) == 0


def test_datanodes_that_say_nothing_are_given_up_and_then_written_to_again(
    hdfs: LocalHdfs, make: Make
) -> None:
    storage = make("&timeout=1s")
    storage.put("a", b"x")
    for node in hdfs.datanodes:
        node.signal(signal.SIGSTOP)
    try:
        for verb in (lambda: storage.put("b", b"y"), lambda: storage.get("a")):
            with pytest.raises(StorageError, match="no answer for 1 s") as caught:
                verb()
            assert "DataNodes" in str(caught.value.hint)
        assert [info.name for info in storage.list()] == ["a"]
    finally:
        for node in hdfs.datanodes:
            node.signal(signal.SIGCONT)
    patient = open_storage(storage.url.replace("timeout=1s", "timeout=30s"))
    patient.put("b", b"y")
    assert patient.get("b") == b"y"


def test_with_a_datanode_gone_fewer_copies_are_written_at_first(
    hdfs: LocalHdfs, make: Make
) -> None:
    lost, kept = hdfs.datanodes
    told, default = make("&replication=2&timeout=3s"), make("&timeout=3s")
    lost.stop()
    try:
        for storage in (told, default):
            assert storage.put_if_absent("a", b"x" * 1000)
            assert storage.get("a") == b"x" * 1000
            assert kept.host in storage.locations("a")
            assert storage._client().get_file_info(storage.place.path("a")).replication == 2
    finally:
        lost.start()
        lost.wait_ready()
    wait_until(
        lambda: len(told.locations("a")) == len(default.locations("a")) == 2, "HDFS copies them"
    )


def test_when_hosts_were_lost_fewer_copies_are_written_at_first(make: Make) -> None:
    storage = make("&replication=2")

    def first_copies(used: HdfsStorage) -> tuple[int | None, int | None]:
        return used._copies(["the first"], time.monotonic())

    assert first_copies(storage) == (2, 2)
    storage.expect_faults(60)
    try:
        sent = pickle.dumps(storage)
        assert first_copies(HdfsStorage(storage.url)) == (1, 2)
        storage.put("a", b"x")
        assert storage.get("a") == b"x"
        wait_until(lambda: len(storage.locations("a")) == 2, "HDFS copies it")
    finally:
        storage.expect_faults(0)
    assert first_copies(storage) == (2, 2)
    try:
        assert first_copies(pickle.loads(sent)) == (1, 2)
    finally:
        storage.expect_faults(0)


@pytest.fixture
def hung(storage: HdfsStorage) -> Iterator[Callable[[], None]]:
    """Hosts were lost; ``hung()`` makes the next upload hang until the test is over."""
    over = threading.Event()

    def wait() -> None:
        over.wait()

    storage.expect_faults(600)
    yield lambda: arm("storage.hdfs.write", wait)
    storage.expect_faults(0)
    over.set()


@pytest.mark.parametrize("verb", ["put", "put_if_absent"])
def test_when_hosts_were_lost_an_upload_that_hangs_is_repeated_beside_itself(
    storage: HdfsStorage, hung: Callable[[], None], verb: str
) -> None:
    hung()
    getattr(storage, verb)("log/7", b"mine")
    assert storage.get("log/7") == b"mine"
    leaves_nothing(storage)
    assert not storage.put_if_absent("log/7", b"mine")


def test_with_a_hung_upload_a_rename_whose_answer_was_lost_counts_as_ours(
    storage: HdfsStorage, hung: Callable[[], None]
) -> None:
    hung()
    arm("storage.hdfs.after_rename", "fail")
    assert storage.put_if_absent("log/7", b"mine")
    assert storage.get("log/7") == b"mine"
    leaves_nothing(storage)


def test_an_upload_that_was_never_renamed_does_not_count_as_ours(
    storage: HdfsStorage, hung: Callable[[], None]
) -> None:
    other = HdfsStorage(storage.url)

    def lose() -> None:
        disarm()
        assert other.put_if_absent("log/7", b"mine")  # the same bytes, but not from here
        for status in storage._client().list_status(storage.place.path(".tmp")):
            if not status.length:  # the hung one's, which is gone then, though not renamed
                storage._remove(status.path)
        raise OSError("lost")

    hung()
    arm("storage.hdfs.before_rename", lose)
    assert not storage.put_if_absent("log/7", b"mine")
    leaves_nothing(storage)


def test_a_forked_process_has_a_client_of_its_own(storage: HdfsStorage) -> None:
    storage.put("a", b"from the parent")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(30)  # rather than hang
        try:
            os.write(write, storage.get("a"))
            storage.put("b", b"from the child")
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    os.close(write)
    assert status == 0
    assert os.read(read, 100) == b"from the parent"
    os.close(read)
    assert storage.get("b") == b"from the child"


def test_foreign_files_are_not_listed(storage: HdfsStorage) -> None:
    storage.put("log/a", b"1")
    for name in (".hidden", "log/.a.swp", "log/a b"):
        storage._client().create(storage.place.path(name)).close()
    assert [info.name for info in storage.list()] == ["log/a"]


def test_an_object_and_a_folder_of_one_name_are_an_error_not_a_loss(storage: HdfsStorage) -> None:
    storage.put("a/b", b"1")
    storage.put("c", b"2")
    for write in (storage.put, storage.put_if_absent):
        for name in ("a", "c/d"):
            with pytest.raises(StorageError, match="move it away"):
                write(name, b"3")
    assert [info.name for info in storage.list()] == ["a/b", "c"]


# What can be wrong


def test_safe_mode_is_told(hdfs: LocalHdfs, storage: HdfsStorage) -> None:
    storage.put("a", b"x")
    hdfs.safe_mode(on=True)
    try:
        for write in (storage.put, storage.put_if_absent):
            with pytest.raises(StorageError, match="safe mode") as caught:
                write("b", b"y")
            assert "dfsadmin -safemode leave" in str(caught.value.hint)
        assert storage.get("a") == b"x"
    finally:
        hdfs.safe_mode(on=False)


def test_a_missing_permission_is_told(
    storage: HdfsStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.put("a", b"x")
    storage._client().set_permission(storage.place.path("a"), 0o600)
    monkeypatch.setenv("HADOOP_USER_NAME", "stranger")
    for verb in (lambda: storage.put("b", b"y"), lambda: storage.get("a")):
        with pytest.raises(StorageError, match="user=stranger") as caught:
            verb()
        assert "no permission" in str(caught.value)
        assert "HADOOP_USER_NAME" in str(caught.value.hint)


def test_a_cluster_without_datanodes_is_told(hdfs: LocalHdfs, make: Make) -> None:
    storage = make("&timeout=4s")
    storage.put("a", b"x")
    for node in hdfs.datanodes:
        node.stop()
    try:
        for verb in (lambda: storage.put("b", b"y"), lambda: storage.get("a")):
            with pytest.raises(StorageError, match=r"no DataNode|Connection refused") as caught:
                verb()
            assert "DataNodes" in str(caught.value.hint)
        assert storage.exists("a")  # the NameNode knows
    finally:
        for node in hdfs.datanodes:
            node.start()
        for node in hdfs.datanodes:
            node.wait_ready()
    assert storage.get("a") == b"x"


def test_an_unreachable_namenode_is_told() -> None:
    refused = open_storage("hdfs://127.0.0.1:1/ck?timeout=1s")
    with pytest.raises(StorageError, match=r"127\.0\.0\.1:1 can't be reached") as caught:
        list(refused.list())
    assert "NameNode" in str(caught.value.hint)
    unknown = open_storage("hdfs://no-such-host.invalid:9000/ck?timeout=1s")
    with pytest.raises(StorageError, match=r"no-such-host\.invalid:9000 can't be reached"):
        unknown.put("b", b"y")


def test_a_missing_object_is_not_found_though_all_is_well(storage: HdfsStorage) -> None:
    with pytest.raises(NotFoundError):
        pickle.loads(pickle.dumps(storage)).get("nothing")
