"""The conformance suite that every sink must pass.

Subclass it in a test module; say how to make the sink and how to see what it published::

    from holdfast.sinks import parquet
    from holdfast.testing import SinkTests

    class TestParquetSink(SinkTests):
        failpoints = ("sink.parquet.before_rename",)

        def make_sink(self, place):
            return parquet(place)

        def published(self, sink):
            return {epoch: rows, …}

``make_sink`` is called again, with the same ``place``, in other processes: tests kill those at every
failpoint that the sink names, and let two publish at once. The module doesn't import pytest.
"""

from __future__ import annotations

import decimal
import multiprocessing
import pickle
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any
from unittest import SkipTest, TestCase

import pyarrow as pa

from holdfast.checkpoint.entry import StagedOutput
from holdfast.errors import HoldfastError
from holdfast.failpoints import arm, disarm
from holdfast.sinks.base import Sink, SinkContext
from holdfast.storage import Storage, open_storage

__all__ = ["SinkTests"]

Rows = list[dict[str, Any]]

_raises = TestCase().assertRaises
_SCHEMA = pa.schema([("word", pa.string()), ("n", pa.int64())])
_spawn = multiprocessing.get_context("spawn")


class SinkTests:
    """What a sink must do, one behaviour per test. Instances are made without arguments.

    >>> import holdfast as hf
    >>> class TestParquetSink(SinkTests):
    ...     failpoints = ("sink.parquet.before_rename",)
    ...
    ...     def make_sink(self, place):
    ...         return hf.sinks.parquet(place)
    ...
    ...     def published(self, sink):
    ...         files = sorted(Path(sink.path).glob("epoch-*.parquet"))
    ...         return {int(f.stem[6:]): pa.parquet.read_table(f).to_pylist() for f in files}
    """

    failpoints: Sequence[str] = ()
    """Names of the failpoints passed by ``commit``: the process is killed at each."""

    crosses_processes = True
    """Whether another process can publish to the same place."""

    # What a subclass says

    def make_place(self, tmp_path: Path) -> str:
        """Where one test's output goes: a folder, a URL, … that the test has for itself."""
        return str(tmp_path / "out")

    def make_sink(self, place: str) -> Sink:
        """A new sink that writes there."""
        raise NotImplementedError

    def published(self, sink: Sink) -> Mapping[int, Rows]:
        """What anybody can see of the output: the rows of each epoch, in any order.

        A sink that may deliver an epoch twice returns the last delivery of each.
        """
        raise NotImplementedError

    def contents(self, place: str) -> object:
        """Everything there, hidden or not, in a form that can be compared."""
        return _listing(Path(place))

    def to_dataframe(self, table: pa.Table) -> Any:
        """What a pipeline would give the sink to make DataFrames: here the table itself."""
        return table

    # Nothing leaves before its entry

    def test_staged_output_is_not_visible(self, tmp_path: Path) -> None:
        """Neither while it is written, nor staged, nor made durable (invariant 6)."""
        sink = self.open_sink(tmp_path)
        writer = sink.stager().open(0, 0, "open", _SCHEMA)
        writer.write(_table(("kelp", 1)))
        assert self.published(sink) == {}
        staged = writer.close()
        assert staged is not None
        assert self.published(sink) == {}
        sink.pre_commit([staged])
        assert self.published(sink) == {}

    def test_validate_changes_nothing(self, tmp_path: Path) -> None:
        """Neither where nothing is yet nor beside published output."""
        place, storage = self.make_place(tmp_path), self._storage(tmp_path)
        before = self.contents(place), _listing(tmp_path)
        self.make_sink(place).validate(self._context(storage, claim=0))
        assert (self.contents(place), _listing(tmp_path)) == before
        sink = self.open_sink(tmp_path)
        _publish(sink, [_stage(sink, 0, 0, ("kelp", 1))])
        before = self.contents(place), _listing(tmp_path)
        self.make_sink(place).validate(self._context(storage, claim=0))
        assert (self.contents(place), _listing(tmp_path)) == before

    # What is committed is published

    def test_commit_publishes_all_partitions(self, tmp_path: Path) -> None:
        """An epoch is what all its tasks staged."""
        sink = self.open_sink(tmp_path)
        _publish(sink, [_stage(sink, 0, p, (f"word {p}", p), ("kelp", p)) for p in range(3)])
        words = [(f"word {p}", p) for p in range(3)] + [("kelp", p) for p in range(3)]
        self._expect(sink, {0: words})

    def test_a_task_may_write_often(self, tmp_path: Path) -> None:
        """The rows of all writes are there, and were counted."""
        sink = self.open_sink(tmp_path)
        writer = sink.stager().open(0, 0, "often", _SCHEMA)
        for n in range(20):
            writer.write(_table(("kelp", n), ("rock", n)))
        staged = writer.close()
        assert staged is not None
        assert (staged.epoch, staged.partition, staged.rows) == (0, 0, 40)
        _publish(sink, [staged])
        self._expect(sink, {0: [(word, n) for n in range(20) for word in ("kelp", "rock")]})

    def test_epochs_are_published_together_or_one_by_one(self, tmp_path: Path) -> None:
        """In either case each has its own rows."""
        sink = self.open_sink(tmp_path)
        outputs = [_stage(sink, epoch, 0, ("kelp", epoch)) for epoch in range(5)]
        _publish(sink, outputs[:1])
        _publish(sink, outputs[1:3])
        self._expect(sink, {epoch: [("kelp", epoch)] for epoch in range(3)})
        _publish(sink, outputs[3:])
        self._expect(sink, {epoch: [("kelp", epoch)] for epoch in range(5)})

    def test_epochs_need_not_be_dense(self, tmp_path: Path) -> None:
        """Epochs without output are skipped; after a rollback numbers jump."""
        sink = self.open_sink(tmp_path)
        for epoch in (3, 4, 7_000_001):
            _publish(sink, [_stage(sink, epoch, 0, ("kelp", epoch))])
        self._expect(sink, {epoch: [("kelp", epoch)] for epoch in (3, 4, 7_000_001)})

    def test_empty_partitions_stage_nothing(self, tmp_path: Path) -> None:
        """A task without rows, or with tables of none, has no output; an epoch may have none."""
        sink = self.open_sink(tmp_path)
        assert sink.stager().open(0, 0, "unused", _SCHEMA).close() is None
        writer = sink.stager().open(0, 1, "empty", _SCHEMA)
        writer.write(_SCHEMA.empty_table())
        assert writer.close() is None
        _publish(sink, [])
        assert self.published(sink) == {}
        _publish(sink, [_stage(sink, 1, 1, ("kelp", 1))])
        self._expect(sink, {1: [("kelp", 1)]})

    def test_values_arrive_as_they_were(self, tmp_path: Path) -> None:
        """Columns of Spark's primitive types, with nulls and extremes."""
        table = self.wide_table()
        sink = self.open_sink(tmp_path, table.schema)
        writer = sink.stager().open(0, 0, "wide", table.schema)
        writer.write(table)
        staged = writer.close()
        assert staged is not None
        _publish(sink, [staged])
        rows = self.published(sink)[0]
        assert _sorted(rows) == _sorted(table.to_pylist())

    def wide_table(self) -> pa.Table:
        """The values that :meth:`test_values_arrive_as_they_were` sends."""
        utc = timezone.utc
        return pa.table(
            {
                "flag": pa.array([True, None], pa.bool_()),
                "byte": pa.array([-128, None], pa.int8()),
                "long": pa.array([2**63 - 1, None], pa.int64()),
                "double": pa.array([1e-300, None], pa.float64()),
                "price": pa.array([decimal.Decimal("-12345678.90"), None], pa.decimal128(10, 2)),
                "text": pa.array(["Tang, größer 🌊\n", None], pa.string()),
                "raw": pa.array([b"\x00\xff", None], pa.binary()),
                "day": pa.array([date(1969, 12, 31), None], pa.date32()),
                "at": pa.array(
                    [datetime(2026, 1, 2, 3, 4, 5, 678901, utc), None], pa.timestamp("us", "UTC")
                ),
                "wall": pa.array([datetime(2026, 1, 2, 3, 4, 5, 6), None], pa.timestamp("us")),
            }
        )

    # Committing again, by anyone, changes nothing

    def test_commit_twice_changes_nothing(self, tmp_path: Path) -> None:
        """By the same sink, whether it is told so or not."""
        sink = self.open_sink(tmp_path)
        outputs = [_stage(sink, epoch, p, ("kelp", p)) for epoch in (1, 2) for p in (0, 1)]
        _publish(sink, outputs)
        sink.commit(outputs, maybe_repeated=False)
        sink.commit(outputs, maybe_repeated=True)
        self._expect(sink, {1: [("kelp", 0), ("kelp", 1)], 2: [("kelp", 0), ("kelp", 1)]})

    def test_a_later_claim_may_commit_again(self, tmp_path: Path) -> None:
        """After a restart: what was published, with what was not."""
        first = self.open_sink(tmp_path, claim=1)
        outputs = [_stage(first, epoch, 0, ("kelp", epoch)) for epoch in (1, 2)]
        _publish(first, outputs[:1])
        second = self.open_sink(tmp_path, claim=4)
        second.sweep(outputs)
        second.commit(outputs, maybe_repeated=True)
        self._expect(second, {1: [("kelp", 1)], 2: [("kelp", 2)]})
        _publish(second, [_stage(second, 3, 0, ("kelp", 3))])
        self._expect(second, {epoch: [("kelp", epoch)] for epoch in (1, 2, 3)})

    def test_two_processes_may_commit_at_once(self, tmp_path: Path) -> None:
        """A driver that doesn't know yet that it is fenced, and its successor."""
        self._needs_processes()
        sink = self.open_sink(tmp_path)
        outputs = [_stage(sink, e, p, (f"word {p}", e)) for e in range(20) for p in range(3)]
        sink.pre_commit(outputs)
        together = _spawn.Barrier(2)
        racers = [self._start(tmp_path, outputs, claim, together=together) for claim in (1, 2)]
        assert [_exit_code(racer) for racer in racers] == [0, 0]
        self._expect(sink, {e: [(f"word {p}", e) for p in range(3)] for e in range(20)})

    # Whatever happens while it commits

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Every failpoint that the sink names, at its first and second passage."""
        if "sink_failpoint" in metafunc.fixturenames:
            metafunc.parametrize("sink_failpoint", self.failpoints)
            metafunc.parametrize("passage", (1, 2))

    def test_a_killed_commit_can_be_repeated(
        self, tmp_path: Path, sink_failpoint: str, passage: int
    ) -> None:
        """By another process, and the result is as if nothing had happened."""
        self._needs_processes()
        sink = self.open_sink(tmp_path)
        outputs = [_stage(sink, e, p, (f"word {p}", e)) for e in range(3) for p in range(2)]
        sink.pre_commit(outputs)
        killed = self._start(tmp_path, outputs, 2, kill_at=(sink_failpoint, passage))
        assert _exit_code(killed) == -signal.SIGKILL
        assert _exit_code(self._start(tmp_path, outputs, 3)) == 0
        self._expect(sink, {e: [(f"word {p}", e) for p in range(2)] for e in range(3)})

    def test_a_failed_commit_can_be_repeated(
        self, tmp_path: Path, sink_failpoint: str, passage: int
    ) -> None:
        """By the same sink, once the disk (say) works again."""
        sink = self.open_sink(tmp_path)
        outputs = [_stage(sink, e, p, (f"word {p}", e)) for e in range(3) for p in range(2)]
        sink.pre_commit(outputs)
        arm(sink_failpoint, "fail", passage)
        try:
            with _raises((OSError, HoldfastError)):
                sink.commit(outputs, maybe_repeated=False)
        finally:
            disarm(sink_failpoint)
        sink.commit(outputs, maybe_repeated=True)
        self._expect(sink, {e: [(f"word {p}", e) for p in range(2)] for e in range(3)})

    # What is not committed never appears

    def test_aborted_attempts_never_appear(self, tmp_path: Path) -> None:
        """Aborted before it wrote, while it wrote, and after it had finished."""
        sink = self.open_sink(tmp_path)
        stager = sink.stager()
        stager.open(0, 0, "early", _SCHEMA).abort()
        for nonce in ("writing", "finished"):
            writer = stager.open(0, 0, nonce, _SCHEMA)
            writer.write(_table((nonce, 1)))
            if nonce == "finished":
                writer.close()
            writer.abort()
        _publish(sink, [_stage(sink, 0, 0, ("kelp", 1))])
        self._expect(sink, {0: [("kelp", 1)]})

    def test_attempts_that_lost_never_appear(self, tmp_path: Path) -> None:
        """A second attempt of a task, and one that died: neither now nor after a sweep."""
        sink = self.open_sink(tmp_path)
        lost = _stage(sink, 0, 0, ("lost", 1))
        won = _stage(sink, 0, 0, ("kelp", 1))
        assert lost.name != won.name
        died = sink.stager().open(0, 1, "died", _SCHEMA)
        died.write(_table(("died", 1)))
        _publish(sink, [won])
        later = self.open_sink(tmp_path, claim=2)
        later.sweep([])
        later.commit([won], maybe_repeated=True)
        self._expect(later, {0: [("kelp", 1)]})
        died.abort()

    def test_sweep_keeps_what_waits(self, tmp_path: Path) -> None:
        """Staged output that an entry names survives any number of sweeps."""
        first = self.open_sink(tmp_path, claim=1)
        waiting = [_stage(first, 0, p, ("kelp", p)) for p in range(2)]
        _stage(first, 0, 0, ("left over", 1))
        first.pre_commit(waiting)
        second = self.open_sink(tmp_path, claim=3)
        second.sweep(waiting)
        second.sweep(waiting)
        second.commit(waiting, maybe_repeated=True)
        self._expect(second, {0: [("kelp", 0), ("kelp", 1)]})

    def test_sweep_leaves_higher_claims_alone(self, tmp_path: Path) -> None:
        """A driver that was taken over and doesn't know yet must not harm its successor."""
        self._needs_processes()
        old = self.open_sink(tmp_path, claim=1)
        new = self.open_sink(tmp_path, claim=2)
        output = _stage(new, 0, 0, ("kelp", 1))
        old.sweep([])
        _publish(new, [output])
        self._expect(new, {0: [("kelp", 1)]})

    # What runs elsewhere

    def test_the_stager_can_be_pickled(self, tmp_path: Path) -> None:
        """Tasks run in other processes."""
        sink = self.open_sink(tmp_path)
        stager = pickle.loads(pickle.dumps(sink.stager()))  # noqa: S301 - our own bytes
        writer = stager.open(0, 0, "elsewhere", _SCHEMA)
        writer.write(_table(("kelp", 1)))
        _publish(sink, [writer.close()])
        self._expect(sink, {0: [("kelp", 1)]})

    def test_it_describes_itself_the_same_each_time(self, tmp_path: Path) -> None:
        """A restart is compared with the run before by these words."""
        place = self.make_place(tmp_path)
        assert self.make_sink(place).describe() == self.make_sink(place).describe() != ""

    # Helpers

    def _storage(self, tmp_path: Path) -> Storage:
        return open_storage(tmp_path / "ck")

    def _context(self, storage: Storage, claim: int, schema: pa.Schema = _SCHEMA) -> SinkContext:
        return SinkContext(
            "conformance", "sink-0", claim, storage, schema, ("word",), self.to_dataframe
        )

    def open_sink(self, tmp_path: Path, schema: pa.Schema = _SCHEMA, claim: int = 1) -> Sink:
        """A sink of this test, opened as a driver with that claim would."""
        sink = self.make_sink(self.make_place(tmp_path))
        sink.open(self._context(self._storage(tmp_path), claim, schema))
        return sink

    def _expect(self, sink: Sink, epochs: Mapping[int, Sequence[tuple[str, int]]]) -> None:
        found = {epoch: _sorted(rows) for epoch, rows in self.published(sink).items()}
        assert found == {
            epoch: _sorted([{"word": word, "n": n} for word, n in rows])
            for epoch, rows in epochs.items()
        }

    def _needs_processes(self) -> None:
        if not self.crosses_processes:
            raise SkipTest("the output lives in one process")

    def _start(
        self,
        tmp_path: Path,
        outputs: Sequence[StagedOutput],
        claim: int,
        *,
        together: Any = None,
        kill_at: tuple[str, int] | None = None,
    ) -> Any:
        """Commit in a process of its own, which is returned."""
        commit = _Commit(type(self), tmp_path, tuple(outputs), claim, together, kill_at)
        process = _spawn.Process(target=commit.run)
        process.start()
        return process


@dataclass(frozen=True)
class _Commit:
    """What another process shall do."""

    tests: type[SinkTests]
    tmp_path: Path
    outputs: Sequence[StagedOutput]
    claim: int
    together: Any
    kill_at: tuple[str, int] | None

    def run(self) -> None:
        sink = self.tests().open_sink(self.tmp_path, claim=self.claim)
        if self.kill_at is not None:
            arm(self.kill_at[0], "kill", self.kill_at[1])
        if self.together is not None:
            self.together.wait(60)
        sink.commit(self.outputs, maybe_repeated=True)
        sink.close()


def _exit_code(process: Any) -> int | None:
    process.join()
    code: int | None = process.exitcode
    process.close()
    return code


def _publish(sink: Sink, outputs: Sequence[StagedOutput]) -> None:
    sink.pre_commit(outputs)
    sink.commit(outputs, maybe_repeated=False)


_attempts = iter(range(2**31))


def _stage(sink: Sink, epoch: int, partition: int, *rows: tuple[str, int]) -> StagedOutput:
    writer = sink.stager().open(epoch, partition, f"attempt{next(_attempts)}", _SCHEMA)
    writer.write(_table(*rows))
    staged = writer.close()
    assert staged is not None
    return staged


def _table(*rows: tuple[str, int]) -> pa.Table:
    return pa.Table.from_pylist([{"word": word, "n": n} for word, n in rows], _SCHEMA)


def _sorted(rows: Sequence[dict[str, Any]]) -> Rows:
    return sorted(rows, key=repr)


def _listing(folder: Path) -> list[tuple[str, int]]:
    return sorted(
        (str(path.relative_to(folder)), path.stat().st_mtime_ns) for path in folder.rglob("*")
    )
