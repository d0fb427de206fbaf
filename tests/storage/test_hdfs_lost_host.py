"""HDFS right after the loss of a DataNode, on which the NameNode still counts."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from bench.services.daemon import wait_until
from bench.services.hadoop import LocalHdfs
from holdfast.storage import HdfsStorage

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("hdfs_parts")]
_numbers = itertools.count()


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalHdfs]:
    with LocalHdfs(tmp_path_factory.mktemp("hdfs"), datanodes=3, replication=3) as running:
        yield running


@pytest.fixture(params=[signal.SIGKILL, signal.SIGSTOP], ids=["killed", "mute"])
def storage(hdfs: LocalHdfs, request: pytest.FixtureRequest) -> Iterator[HdfsStorage]:
    """With objects 0 to 9 in before/, and one of three DataNodes gone."""
    storage = HdfsStorage(f"{hdfs.url}/t/ck-{next(_numbers)}")
    hdfs.wait_live(3)
    for number in range(10):
        storage.put(f"before/{number}", content(number))
    lost = hdfs.datanodes[-1]
    lost.signal(request.param)
    storage.expect_faults(600)
    try:
        yield storage
    finally:
        storage.expect_faults(0)
        if request.param == signal.SIGSTOP:
            lost.signal(signal.SIGCONT)
        else:
            lost.stop()
            lost.start()
            lost.wait_ready()


def content(number: int) -> bytes:
    return bytes([number]) * (0, 1, 1000, 3_000_000)[number % 4]


def test_what_is_written_right_after_a_loss_is_whole(storage: HdfsStorage) -> None:
    for number in range(10):
        storage.put(f"after/{number}", content(number))
    for folder, number in itertools.product(("before", "after"), range(10)):
        assert storage.get(f"{folder}/{number}") == content(number)
    leaves_nothing(storage)


def test_right_after_a_loss_exactly_one_creator_wins(storage: HdfsStorage) -> None:
    creators = [bytes([c]) * 1000 for c in b"abc"]
    with ThreadPoolExecutor(len(creators)) as pool:
        for number in range(5):
            name = f"log/{number}"
            won = list(pool.map(partial(storage.put_if_absent, name), creators))
            assert won.count(True) == 1
            assert storage.get(name) == creators[won.index(True)]
    leaves_nothing(storage)


def leaves_nothing(storage: HdfsStorage) -> None:
    """A given-up attempt may still be about to create its file: the sweep after that removes it."""

    def swept() -> bool:
        storage.sweep(older_than_s=0)
        return not list(storage._client().list_status(storage.place.path(".tmp")))

    wait_until(swept, "no temporary file is left")
