"""Object stores, on a real S3 server."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.services.daemon import wait_until
from bench.services.s3 import S3Server, available
from holdfast.errors import StorageError
from holdfast.failpoints import arm, disarm
from holdfast.storage import NotFoundError, ObjectStoreStorage, open_storage
from holdfast.testing import StorageTests

pytestmark = pytest.mark.slow
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, require: Callable[[str, str], None]
) -> Iterator[S3Server]:
    require("obstore", "pip install 'holdfast[object-store]'")
    if not available():
        require("go", "install Go (then versitygw is built, once), or pip install 'moto[server]'")
    with pytest.MonkeyPatch.context() as patch, S3Server(tmp_path_factory.mktemp("s3")) as running:
        running.create_bucket("holdfast")
        # Nothing of the machine's own cloud account may reach a test.
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            patch.delenv(name)
        for name, value in running.client_variables().items():
            patch.setenv(name, value)
        yield running


@pytest.fixture
def storage(server: S3Server) -> ObjectStoreStorage:
    return ObjectStoreStorage(f"s3://holdfast/ck-{next(_numbers)}?timeout=10s")


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    disarm()


class TestS3Storage(StorageTests):
    big_bytes = 20 * 2**20  # more than one request moves

    @pytest.fixture
    def storage(self, server: S3Server) -> ObjectStoreStorage:
        return ObjectStoreStorage(f"s3://holdfast/suite-{next(_numbers)}")


def test_a_range_longer_than_a_request_is_read_in_pieces(storage: ObjectStoreStorage) -> None:
    data = bytes(range(256)) * (40 * 2**20 // 256)
    storage.put("big", data)
    assert storage.get_range("big", 5, 2**25 + 7) == data[5 : 5 + 2**25 + 7]
    assert storage.get_range("big", 2**25, 2**25) == data[2**25 :]


def test_foreign_objects_are_not_listed(storage: ObjectStoreStorage) -> None:
    storage.put("log/a", b"1")
    for name in (".tmp/x", "log/.hidden", "log/a b"):
        storage._client().put(name, b"foreign")
    assert [info.name for info in storage.list()] == ["log/a"]


def test_prefixes_of_a_bucket_are_apart(server: S3Server) -> None:
    one, other = (open_storage(f"s3://holdfast/{name}") for name in ("part", "part-2"))
    other.put("a", b"x")
    assert list(one.list()) == []
    assert not one.exists("a")


def test_a_writer_whose_answer_was_lost_finds_its_own_object(storage: ObjectStoreStorage) -> None:
    # The object is made by the same put, just before it: as if a proxy had sent it twice.
    sent = []
    put = storage._client().put

    def twice(*arguments: object, **named: object) -> object:
        sent.append(put(*arguments, **named))  # type: ignore[arg-type]
        return put(*arguments, **named)  # type: ignore[arg-type]

    class Doubling:
        def __getattr__(self, name: str) -> object:
            return twice if name == "put" else getattr(type(storage)._client(storage), name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "_client", lambda size_bytes=0: Doubling())
        assert storage.put_if_absent("log/7", b"mine")
    assert len(sent) == 1
    assert not storage.put_if_absent("log/7", b"mine")


@pytest.mark.parametrize("verb", ["put", "put_if_absent"])
@pytest.mark.parametrize("point", ["before_put", "after_put"])
def test_a_killed_writer_leaves_a_whole_object_or_none(
    storage: ObjectStoreStorage, verb: str, point: str
) -> None:
    program = (
        "import sys; from holdfast.storage import open_storage; "
        "getattr(open_storage(sys.argv[1]), sys.argv[2])('log/7', b'x' * 100_000)"
    )
    child = subprocess.run(
        [sys.executable, "-c", program, storage.url, verb],
        env={**os.environ, "HOLDFAST_FAILPOINTS": f"storage.object_store.{point}=kill"},
        check=False,
    )
    assert child.returncode == -signal.SIGKILL
    whole = [b"x" * 100_000] if point == "after_put" else []
    assert [storage.get(info.name) for info in storage.list()] == whole
    assert storage.put_if_absent("log/7", b"y") is (not whole)


def test_a_failure_after_the_put_is_reported_though_the_object_is_there(
    storage: ObjectStoreStorage,
) -> None:
    arm("storage.object_store.after_put", "fail")
    with pytest.raises(StorageError, match="'log/7'"):
        storage.put_if_absent("log/7", b"x")
    assert storage.get("log/7") == b"x"


def test_a_forked_process_is_told_at_once(storage: ObjectStoreStorage) -> None:
    storage.put("a", b"x")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            storage.get("a")
        except StorageError as error:
            os.write(write, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    assert b"spawn" in os.read(read, 10_000)
    os.close(read)


# What can be wrong


def test_a_missing_bucket_is_told(server: S3Server) -> None:
    storage = open_storage("s3://no-such-bucket/ck")
    for verb in (
        lambda: list(storage.list()),
        lambda: storage.get("a"),
        lambda: storage.put("a", b"x"),
        lambda: storage.put_if_absent("a", b"x"),
    ):
        with pytest.raises(StorageError, match="NoSuchBucket") as caught:
            verb()
        assert "create the bucket" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("AWS_SECRET_ACCESS_KEY", "SignatureDoesNotMatch"),
        ("AWS_ACCESS_KEY_ID", "No user exists|InvalidAccessKeyId"),
    ],
)
def test_wrong_credentials_are_told(
    server: S3Server,
    require: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    said: str,
) -> None:
    if not server.checks_credentials:
        require("go", "install Go: versitygw checks keys, moto's server believes every one")
    monkeypatch.setenv(variable, "wrong")
    storage = open_storage("s3://holdfast/ck")
    for verb in (
        lambda: list(storage.list()),
        lambda: storage.get("a"),
        lambda: storage.put("a", b"x"),
        lambda: storage.put_if_absent("a", b"x"),
    ):
        with pytest.raises(StorageError) as caught:
            verb()
        assert "AWS_" in str(caught.value.hint)
        assert server.secret_key not in str(caught.value)
    with pytest.raises(StorageError, match=said):
        storage.put("a", b"x")


def test_an_unreachable_endpoint_is_told(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    storage = open_storage("s3://holdfast/ck?timeout=1s")
    for verb in (lambda: list(storage.list()), lambda: storage.put("a", b"x")):
        with pytest.raises(StorageError, match=r"127\.0\.0\.1:1") as caught:
            verb()
        assert "AWS_ENDPOINT_URL" in str(caught.value.hint)


def test_a_server_that_says_nothing_is_given_up(
    server: S3Server, storage: ObjectStoreStorage
) -> None:
    storage.put("a", b"x")
    hurried = open_storage(storage.url.replace("timeout=10s", "timeout=1s"))
    server.signal(signal.SIGSTOP)
    try:
        for verb in (lambda: hurried.get("a"), lambda: hurried.put("b", b"y")):
            with pytest.raises(StorageError, match="can't"):
                verb()
    finally:
        server.signal(signal.SIGCONT)
    assert hurried.get("a") == b"x"


def test_a_missing_object_is_not_found_though_all_is_well(storage: ObjectStoreStorage) -> None:
    with pytest.raises(NotFoundError):
        storage.get("nothing")


def test_the_cache_holds_what_was_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.services.daemon import cache_folder

    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path))
    assert cache_folder("x") == tmp_path / "x"
    assert (tmp_path / "x").is_dir()


def test_a_server_ends_with_the_process_that_started_it(tmp_path: Path, server: S3Server) -> None:
    program = (
        "import sys, time; from pathlib import Path; from bench.services.s3 import S3Server; "
        "server = S3Server(Path(sys.argv[1])); server.start(); server.wait_ready(); "
        "print(server.pid, flush=True); time.sleep(600)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdout=subprocess.PIPE, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert child.stdout is not None
    pid = int(child.stdout.readline())
    child.stdout.close()
    child.kill()
    child.wait()
    wait_until(lambda: not runs(pid), f"the end of process {pid}")


def runs(pid: int) -> bool:
    """Whether a process runs; one that has ended and nobody has waited for doesn't."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
