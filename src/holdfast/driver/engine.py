"""What a driver asks of whatever does the work: Spark, or the simulator.

The protocol of a pipeline is in this room, and knows of an engine what is here: where epochs come
from, how one epoch's tasks are run, how something is done beside the epochs, and who lives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from holdfast import runtime
from holdfast.driver.graph import Graph, Node, NodeFeed
from holdfast.driver.pacing import StageShape
from holdfast.errors import (
    CorruptionError,
    HoldfastError,
    ProcessingError,
    StateLostError,
    StorageError,
)
from holdfast.operators.base import Clock
from holdfast.placement.planner import Host
from holdfast.storage import Storage
from holdfast.tasks.disk import DiskReport
from holdfast.tasks.here import Here
from holdfast.tasks.task import TaskReport, TaskSpec

if TYPE_CHECKING:
    from holdfast.driver.options import Options
    from holdfast.driver.scratch import ScratchReader

__all__ = [
    "AnyGraph",
    "AnyNode",
    "Batch",
    "Engine",
    "EpochRun",
    "EpochStream",
    "Fleet",
    "GoneHost",
    "HostGoneError",
    "JobFailedError",
    "NodeJob",
    "PassingFailure",
    "Platform",
    "StreamError",
    "Ticker",
    "passing_failure_of",
]

Batch = Any
"""An epoch's input, as the engine hands it over and takes it back."""
AnyNode = Node[NodeFeed]
AnyGraph = Graph[Any]


class PassingFailure(Enum):
    """Why a job failed that may do better if it is run again; its value says so in a log."""

    EXECUTOR_LOST = "an executor was lost"
    ROWS_LOST = "rows on their way were lost with a host"
    WORKER_DIED = "a task's process died"
    CONNECTION_LOST = "a connection broke"
    CANCELLED = "the job was cancelled"
    STATE_LOST = "a task did not find state on its host"
    BAD_FILE = "a task found a bad file on its host's disk"
    STORAGE_FAILED = "storage failed a task"


def passing_failure_of(error: HoldfastError | None) -> PassingFailure | None:
    """Whether a task that raised this may do better when it is repeated, elsewhere or with another copy."""
    if isinstance(error, StateLostError):
        return PassingFailure.STATE_LOST
    if isinstance(error, CorruptionError) and error.on_disk:
        return PassingFailure.BAD_FILE
    if isinstance(error, StorageError):
        return PassingFailure.STORAGE_FAILED
    return None


class JobFailedError(Exception):
    """A job of the engine's failed, because of something that it says."""

    def __init__(
        self,
        cause: Exception,
        passing: PassingFailure | None = None,
        raised: HoldfastError | None = None,
    ) -> None:
        super().__init__(str(cause if raised is None else raised))
        self.cause = cause
        self.passing = passing
        """Why another attempt may do better; None if nothing speaks for that."""
        self.raised = raised
        """The error of ours that a task raised, if it was one."""


class HostGoneError(HoldfastError):
    """A host went while something was done on it: look who is left, and do it there."""

    kind = "host-gone"


class StreamError(Exception):
    """The stream of epochs could not be asked or told something: whatever makes it has ended, perhaps."""


@dataclass
class NodeJob:
    """A node's part of the job of an epoch."""

    node: Any
    """A :class:`~holdfast.driver.graph.Node`, as the engine's own graph has it."""
    shape: StageShape
    clock: Clock
    make_spec: Callable[[int], TaskSpec]
    """The specification of its tasks, of which there are so many."""
    wanted: frozenset[int] | None = None
    """Which of its partitions are computed; None: all. The others may get no rows, and do nothing."""
    spec: TaskSpec | None = None
    """The engine sets it, when it knows how many there are."""
    source_rows: list[Callable[[], int]] = field(default_factory=list)
    """If rows were grouped before they were sent: how many there were."""

    @property
    def partitions(self) -> int:
        """How many tasks it has."""
        assert self.spec is not None
        return self.spec.partitions

    @property
    def computed(self) -> frozenset[int]:
        """The partitions that report."""
        every = frozenset(range(self.partitions))
        return every if self.wanted is None else every & self.wanted


@dataclass(frozen=True, slots=True)
class EpochRun:
    """What an attempt at an epoch came to."""

    reports: list[TaskReport]
    planned: float
    """When the job was ready to run, by the runtime's clock."""
    ran: float
    """When it had ended."""


@dataclass(frozen=True, slots=True)
class GoneHost:
    """A host without executors."""

    why: str
    """What the engine says."""
    for_good: bool
    """Whether the host itself is lost, and not just its executor, which is started again."""


class EpochStream(Protocol):
    """Epochs as they come, one after the other, each a call of the function that it was begun with.

    The methods raise :class:`StreamError` when nobody is there any more who could be asked.
    """

    @property
    def is_active(self) -> bool:
        """Whether further epochs may come."""

    @property
    def has_read_all(self) -> bool:
        """Whether it ended because there was no more input, rather than was stopped."""

    def stop(self) -> None:
        """End it; waits for the epoch in hand."""

    def process_all(self) -> None:
        """Wait until all input that is there now has been in an epoch that has ended."""

    def await_end(self) -> None:
        """Wait until it ends; raises what an epoch raised."""


class Ticker(Protocol):
    """A source without rows, so that epochs come though no input does."""

    def tick(self) -> bool:
        """Bring an epoch; False if the stream has not begun."""

    def end(self) -> None:
        """Tick no more by itself."""


class Engine(Protocol):
    """Carries out the work of one claim."""

    @property
    def host(self) -> str:
        """The host of the driver, which is that of all tasks unless there is a fleet."""

    @property
    def ticks(self) -> Ticker | None:
        """If the graph wants them: they are the last source then."""

    @property
    def parallelism(self) -> int:
        """How many tasks an epoch has, unless the user says."""

    def begin(self, scratch: ScratchReader, on_batch: Callable[[Batch, int], None]) -> EpochStream:
        """Begin with epochs, where a folder says."""

    # ---- epochs

    def input_partitions(self, batch: Batch) -> int:
        """In how many parts the input comes."""

    def run(
        self, batch: Batch, parts: Mapping[str, NodeJob], hosts: Sequence[str | None], first: bool
    ) -> EpochRun:
        """Run all tasks of an epoch; ``JobFailedError``, or ``HostGoneError``.

        ``hosts``: where the partitions of operators run, if that is not all the same. ``first``:
        no epoch was before.
        """

    def cancel_epoch(self, stream: EpochStream) -> None:
        """End the job of the epoch in hand, which then fails in a passing way."""

    def no_rows(self) -> Batch:
        """Input without rows."""

    def has_rows(self, batch: Batch) -> bool:
        """Whether there is any input."""

    def epoch_of(self, stream: EpochStream) -> AbstractContextManager[None]:
        """What runs in here is an epoch, though the stream, which has ended, doesn't call for it."""

    def sources_ended(self) -> bool | None:
        """Whether all sources have said that they have ended; None if they can't say so."""

    # ---- beside the epochs

    def on_hosts(
        self, hosts: Sequence[str | None], work: Callable[[int, Here], bytes], what: str
    ) -> list[bytes]:
        """Call a function with each number on its host (None: anywhere); what it says, in order.

        ``JobFailedError``; ``HostGoneError`` if one of several hosts goes meanwhile.
        """

    def cancel_background(self) -> None:
        """End what :meth:`on_hosts` has under way."""

    def thread(self, target: Callable[[], object], name: str) -> runtime.Thread:
        """A thread whose jobs are the engine's as those of who makes it are."""

    # ---- words

    def to_dataframe(self, table: pa.Table) -> Any:
        """Rows as a frame that user code can take."""

    def was_cancelled(self, error: BaseException) -> bool:
        """Whether somebody had a job ended, which is no failure."""

    def failure_of(self, error: BaseException, pipeline: str, epoch: int) -> ProcessingError:
        """What went wrong, after an epoch (-1: none yet), in words for the user."""

    def close(self) -> None:
        """Nobody asks any more."""


class Fleet(Protocol):
    """The hosts of a cluster: who lives, and short jobs on them."""

    def executors(self) -> frozenset[str]:
        """A name for every executor that lives."""

    def hosts(self, executors: frozenset[str] | None = None) -> tuple[Host, ...]:
        """The hosts of these executors (by default of all that live), by name."""

    def gone(self, host: str) -> GoneHost:
        """What is known of a host that has no executor."""

    def run(
        self, hosts: Sequence[str], task: Callable[[Here], DiskReport], what: str
    ) -> list[DiskReport]:
        """Do something on each host; ``JobFailedError``; ``HostGoneError`` if one of several goes."""

    def check(
        self, hosts: Sequence[str], packages: Mapping[str, tuple[int, ...]], root: Path
    ) -> None:
        """Raise ``ConfigurationError`` unless every host can run tasks, and shares ``root`` with itself."""

    def cancel(self) -> None:
        """End what :meth:`run` has under way."""


class Platform(Protocol):
    """Where a pipeline is started: what it is, and what it can run on. Asked again at every claim."""

    is_cluster: bool
    scratch_root: Path
    """Where folders for the stream's own files can be made."""

    def graph(self) -> AnyGraph:
        """The pipeline, planned anew."""

    def count_sources(self, graph: Any) -> int:
        """How many sources the stream will read, without that of the ticks."""

    def open_storage(self, url: str) -> Storage:
        """Checkpoint storage."""

    def fleet(self) -> Fleet:
        """The hosts, on a cluster."""

    def prepare(self) -> None:
        """Have hosts import what tasks need."""

    def held(self) -> AbstractContextManager[None]:
        """What a pipeline needs of the whole application as long as it runs."""

    def engine(self, graph: Any, options: Options, fleet: Any, tag: str) -> Engine:
        """What carries out a claim's work on a graph and a fleet of its own; ``tag`` names its jobs."""
