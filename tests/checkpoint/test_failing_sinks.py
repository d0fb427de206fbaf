"""A sink is anybody's code: whatever it raises, its output is tried again and others go on."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

from holdfast.checkpoint.coordinator import Coordinator, StoreResult
from holdfast.checkpoint.entry import EpochRecord, StagedOutput
from holdfast.checkpoint.ledger import Ledger
from holdfast.checkpoint.retention import Retention
from holdfast.errors import FencedError, HoldfastError, StorageError
from holdfast.state.expiry import TableClock
from holdfast.state.version import Version
from holdfast.storage import MemoryStorage
from tests.checkpoint.log_support import open_log

FAULTS = [
    AnalysisException("the table has another schema"),
    pa.ArrowInvalid("a column too many"),
    ValueError("no such row"),
    OSError("no space left"),
    HoldfastError("not now"),
]


class NothingToStore:
    def store(self, version: Version, clock: TableClock | None) -> StoreResult:
        del version, clock
        return StoreResult(())


class Target:
    """A sink whose next calls may fail."""

    repeats_show = False

    def __init__(self) -> None:
        self.faults: dict[str, BaseException] = {}
        self.published: list[int] = []
        self.repeated: list[bool] = []

    def pre_commit(self, staged: Sequence[StagedOutput]) -> None:
        del staged
        self._fail("pre_commit")

    def commit(self, staged: Sequence[StagedOutput], *, maybe_repeated: bool) -> None:
        self._fail("commit")
        self.published += [output.epoch for output in staged]
        self.repeated.append(maybe_repeated)

    def _fail(self, where: str) -> None:
        if (fault := self.faults.pop(where, None)) is not None:
            raise fault


@pytest.fixture
def targets() -> dict[str, Target]:
    return {"broken": Target(), "whole": Target()}


@pytest.fixture
def coordinator(targets: dict[str, Target]) -> Coordinator:
    storage = MemoryStorage("failing-sinks")
    return Coordinator(
        log=open_log(storage),
        storage=storage,
        ledger=Ledger(Version(-1)),
        storer=NothingToStore(),
        sinks=targets,
        schemas=(),
        program={},
        retention=Retention(),
        now_ms=lambda: 1,
    )


def run_epoch(coordinator: Coordinator, epoch: int) -> None:
    staged = {name: [StagedOutput(epoch, 0, f"{epoch}", 1, 1)] for name in coordinator.sinks}
    coordinator.ledger.record_epoch(EpochRecord(epoch, 1, epoch), (), staged, {"metadata": b"m"}, 0)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
def test_what_a_sink_raises_while_publishing_is_told_and_tried_again(
    coordinator: Coordinator, targets: dict[str, Target], fault: Exception
) -> None:
    targets["broken"].faults["commit"] = fault
    run_epoch(coordinator, 0)
    assert coordinator.checkpoint() is not None
    error = coordinator.publish_error
    assert error is not None
    assert str(fault) in str(error)
    assert isinstance(error, StorageError) == isinstance(fault, OSError)
    assert (targets["broken"].published, targets["whole"].published) == ([], [0])
    run_epoch(coordinator, 1)
    assert coordinator.checkpoint() is not None
    assert coordinator.publish_error is None
    assert (targets["broken"].published, targets["whole"].published) == ([0, 1], [0, 1])
    assert targets["broken"].repeated == [True]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
def test_what_a_sink_raises_before_the_entry_is_told_and_tried_again(
    coordinator: Coordinator, targets: dict[str, Target], fault: Exception
) -> None:
    targets["broken"].faults["pre_commit"] = fault
    run_epoch(coordinator, 0)
    assert coordinator.checkpoint() is None
    assert coordinator.last_error is not None
    assert str(fault) in str(coordinator.last_error)
    assert targets["whole"].published == []
    assert coordinator.checkpoint() is not None
    assert coordinator.last_error is None
    assert (targets["broken"].published, targets["whole"].published) == ([0], [0])


def test_the_message_names_the_sink(coordinator: Coordinator, targets: dict[str, Target]) -> None:
    targets["broken"].faults["commit"] = ValueError("no such row")
    run_epoch(coordinator, 0)
    coordinator.checkpoint()
    said = "sink broken could not publish: ValueError: no such row. What to do: "
    assert str(coordinator.publish_error).startswith(said)


@pytest.mark.parametrize("where", ["pre_commit", "commit"])
def test_a_fence_ends_it(coordinator: Coordinator, targets: dict[str, Target], where: str) -> None:
    targets["broken"].faults[where] = FencedError("another driver")
    run_epoch(coordinator, 0)
    with pytest.raises(FencedError):
        coordinator.checkpoint()
