"""Tasks without Spark: epoch after epoch, any P, small runs merged on the way, spilling or not."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from holdfast.operators.aggregates.kinds import AggregateSpec, Input
from holdfast.operators.aggregates.operator import AggregateOperator
from holdfast.operators.base import Clock
from holdfast.operators.deduplicate import DeduplicateOperator
from holdfast.operators.input_rows import SOURCE, TAG
from holdfast.operators.process.keyed import KeyedProcess
from holdfast.state.hashing import FULL_RANGE, partition_of
from holdfast.state.run import StoredForm
from holdfast.state.schema import HASH
from holdfast.state.version import Change, Version
from holdfast.state.view import TableView
from holdfast.storage import MemoryStorage
from holdfast.tasks.spill import Ingest
from holdfast.tasks.task import TaskReport, TaskSpec, run_task
from holdfast.tiers.opener import RunOpener
from tests.operators.process_harness import Harness

KEYS = [("word", pa.string())]
SPECS = [AggregateSpec("n", "count"), AggregateSpec("total", "sum", (Input("x", pa.int64()),))]
OPERATOR = AggregateOperator("counts", KEYS, SPECS)
TABLE = OPERATOR.tables[0]


def batch(words: list[str], amounts: list[int]) -> pa.RecordBatch:
    """Buffer rows as Spark would send them; any function of the key will do for a hash."""
    random_bits = {w: random.Random(w).getrandbits(64) for w in set(words)}
    hashes = np.array([random_bits[w] for w in words], np.uint64).view(np.int64)
    columns = [pa.array(hashes), pa.array(words), pa.array([1] * len(words)), pa.array(amounts)]
    return pa.RecordBatch.from_arrays(columns, names=OPERATOR.input_schema.names)


def run_epoch(
    version: Version, epoch: int, rows: pa.RecordBatch, partitions: int, folder: Path, memory: int
) -> tuple[Version, list[TaskReport]]:
    spec = TaskSpec(
        operator=OPERATOR,
        clock=Clock(epoch, 1000 + epoch),
        partitions=partitions,
        claim=1,
        folder=folder,
        storage=MemoryStorage("tasks"),
        host="h1",
        segments={TABLE.table: version.segments(TABLE.table, FULL_RANGE)},
        mergeable=frozenset(n for n, run in version.runs().items() if run.stored is None),
        stagers={},
        memory_bytes=memory,
    )
    owner = partition_of(np.asarray(rows.column(0)).view(np.uint64), partitions)
    reports = []
    for partition in range(partitions):
        mine = rows.filter(pa.array(owner == partition))
        pieces = [mine.slice(at, 50) for at in range(0, mine.num_rows, 50)]
        reports.append(run_task(spec, partition, pieces))
    changes = [change for report in reports for change in report.changes]
    return version.apply(changes, epoch), reports


def read(version: Version, folder: Path) -> dict[str, tuple[int, int]]:
    opener = RunOpener(folder, MemoryStorage("tasks"))
    segments = version.segments(TABLE.table, FULL_RANGE)
    view = TableView(TABLE, [(opener.open(s.run), s.range) for s in segments])
    rows = [row for piece in view.scan() for row in piece.to_pylist()]
    return {r["word"]: (r["n.count"], r["total.sum"]) for r in rows}


@pytest.mark.parametrize("memory", [1 << 30, 2048], ids=["in memory", "spilling"])
def test_many_epochs_with_changing_partitions_equal_a_dict(tmp_path: Path, memory: int) -> None:
    chance = random.Random(11)
    version = Version(-1)
    model: dict[str, tuple[int, int]] = {}
    merged = spilled = new_keys = 0
    for epoch in range(60):
        words = [f"w{chance.randrange(300)}" for _ in range(chance.randrange(0, 400))]
        amounts = [chance.randrange(-50, 50) for _ in words]
        for word, amount in zip(words, amounts, strict=True):
            n, total = model.get(word, (0, 0))
            model[word] = (n + 1, total + amount)
        version, reports = run_epoch(
            version, epoch, batch(words, amounts), chance.choice([1, 1, 2, 3, 5]), tmp_path, memory
        )
        merged += sum(bool(change.inputs) for r in reports for change in r.changes)
        spilled += sum(r.spilled_bytes for r in reports)
        new_keys += sum(r.new_keys for r in reports)
    assert read(version, tmp_path) == model
    assert new_keys == len(model)
    assert merged > 0
    assert (spilled > 0) == (memory == 2048)
    deepest = max(len(version.segments(TABLE.table, s.range)) for s in version.tables[TABLE.table])
    assert deepest <= 20
    assert not list(tmp_path.glob("spill-*"))


def test_a_task_merges_around_a_layer_of_which_half_is_stored(tmp_path: Path) -> None:
    """What it makes of its runs fits the version that it was given."""

    def rows(epoch: int) -> pa.RecordBatch:
        return batch([f"{epoch}-{i}" for i in range(256)], [1] * 256)

    version = Version(-1)
    for epoch in range(4):
        version, _ = run_epoch(version, epoch, rows(epoch), 2, tmp_path, 1 << 30)
    last = version.segments(TABLE.table, FULL_RANGE)[-1].run
    form = StoredForm("runs/half", 1, "00", 1)
    half = msgspec.structs.replace(last, stored=form)
    version = version.apply([Change(TABLE.table, last.range, (last.name,), half)])
    merged = 0
    for epoch in range(4, 16):
        version, reports = run_epoch(version, epoch, rows(epoch), 1, tmp_path, 1 << 30)
        merged += sum(bool(change.inputs) for r in reports for change in r.changes)
    assert merged
    assert len(read(version, tmp_path)) == 16 * 256


class Counts(KeyedProcess):
    """Counts whatever stands in its rows."""

    output = "k string"

    def process(self, key: Any, rows: Sequence[Any], ctx: Any) -> Iterator[Any]:
        for row in rows:
            ctx.metrics.add(f"{row.d} {row.x}", row.x)
            ctx.metrics.add("price", row.d)
        yield (key.k,)


def test_user_code_may_count_whatever_numbers_it_has(tmp_path: Path) -> None:
    columns = (("k", pa.string()), ("x", pa.float64()), ("d", pa.decimal128(9, 2)))
    run = Harness(Counts, tmp_path, columns[:1], columns)
    rows = [("a", math.nan, Decimal("1.50")), ("a", math.inf, Decimal("2.25"))]
    (report,) = run.run(rows, 1000).reports
    told = TaskReport.decoded(report.encoded()).metrics
    assert math.isnan(told.pop("1.50 nan"))
    assert told == {"2.25 inf": math.inf, "price": 3.75}


def test_an_empty_partition_reports_too(tmp_path: Path) -> None:
    version, reports = run_epoch(Version(-1), 0, batch([], []), 2, tmp_path, 1 << 30)
    assert [(r.partition, r.rows, r.changes, r.staged) for r in reports] == [
        (0, 0, (), {}),
        (1, 0, (), {}),
    ]
    assert version.tables == {}


@pytest.mark.parametrize("memory", [1 << 30, 256], ids=["in memory", "spilling"])
def test_a_failed_attempt_leaves_nothing(tmp_path: Path, memory: int) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        for n in range(5):
            yield batch([f"{n}-{i}" for i in range(20)], list(range(20)))
        assert bool(list(tmp_path.glob("spill-*"))) == (memory == 256)
        raise OSError("the shuffle was lost")

    spec = TaskSpec(
        operator=OPERATOR,
        clock=Clock(0, 1),
        partitions=1,
        claim=1,
        folder=tmp_path,
        storage=MemoryStorage("tasks"),
        host="h1",
        segments={},
        mergeable=frozenset(),
        stagers={},
        memory_bytes=memory,
    )
    with pytest.raises(OSError, match="shuffle"):
        run_task(spec, 0, rows())
    assert list(tmp_path.iterdir()) == []


def test_tables_that_all_partitions_read_are_stored_at_once_when_hosts_are_many(
    tmp_path: Path,
) -> None:
    class Shared(AggregateOperator):
        shared_tables = frozenset({TABLE.table})

    storage = MemoryStorage("shared-tables")

    def epoch(operator: AggregateOperator, number: int, host: str, version: Version) -> Version:
        spec = TaskSpec(
            operator=operator,
            clock=Clock(number, 1000),
            partitions=1,
            claim=1,
            folder=tmp_path / host,
            storage=storage,
            host=host,
            segments={TABLE.table: version.segments(TABLE.table, FULL_RANGE)},
            mergeable=frozenset(),
            stagers={},
            memory_bytes=1 << 30,
            on_demand=True,
        )
        spec.folder.mkdir(exist_ok=True)
        report = run_task(spec, 0, [batch(["a", "b"], [1, 2])])
        return version.apply(report.changes, number)

    plain = epoch(OPERATOR, 0, "h1", Version(-1))
    assert [run.stored for run in plain.runs().values()] == [None]
    operator = Shared("counts", KEYS, SPECS)
    version = epoch(operator, 0, "h1", Version(-1))
    # Another host continues, though it has nothing on its disk.
    version = epoch(operator, 1, "h2", version)
    assert all(run.stored is not None for run in version.runs().values())
    opener = RunOpener(tmp_path / "h3", storage)
    segments = version.segments(TABLE.table, FULL_RANGE)
    view = TableView(TABLE, [(opener.open(s.run), s.range) for s in segments])
    rows = [row for piece in view.scan() for row in piece.to_pylist()]
    assert {r["word"]: (r["n.count"], r["total.sum"]) for r in rows} == {"a": (2, 2), "b": (2, 4)}


def test_rows_of_a_session_in_another_zone_are_taken_in_as_utc(tmp_path: Path) -> None:
    utc, there = pa.timestamp("us", "UTC"), pa.timestamp("us", "Asia/Tokyo")
    nested = pa.map_(pa.string(), pa.struct([("at", pa.list_(utc))]))
    operator = DeduplicateOperator("once", [("at", utc)], [("at", utc), ("all", nested)])
    names = operator.input_schema.names
    values = {HASH: 5, "at": 1_000_000, TAG: 0, SOURCE: 0, "all": [("x", {"at": [7]})]}

    def rows(stamp: pa.DataType) -> pa.RecordBatch:
        columns = pa.map_(pa.string(), pa.struct([("at", pa.list_(stamp))]))
        kinds = {HASH: pa.int64(), "at": stamp, TAG: pa.int64(), SOURCE: pa.int8(), "all": columns}
        arrays = [pa.array([values[name]], kinds[name]) for name in names]
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def taken(batch: pa.RecordBatch) -> pa.Table:
        ingest = Ingest(operator, tmp_path, 1 << 20)
        ingest.read([batch])
        ((_, piece),) = ingest.pieces(FULL_RANGE)
        return piece.table

    assert taken(rows(there)).equals(taken(rows(utc)))
