"""What an epoch comes to can be found out without recording it: in whole or by partition, as often as you like."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from holdfast.driver.compute import Computed, Given
from holdfast.driver.epoch import EpochLoop
from holdfast.driver.pacing import Pacing, StageShape
from holdfast.driver.start import Start
from holdfast.sinks._noop import NoopSink
from holdfast.state.expiry import TableClock
from holdfast.state.hashing import FULL_RANGE
from holdfast.state.version import Version
from holdfast.state.view import TableView
from holdfast.storage import MemoryStorage
from holdfast.tasks.here import Here
from holdfast.testing.simulation import World, simulating
from holdfast.testing.simulation.drawing import DrawProgram
from holdfast.testing.simulation.inputs import Inputs, SimulatedBatch
from holdfast.testing.simulation.machines import Machines
from holdfast.testing.simulation.mishaps import Mishaps
from holdfast.testing.simulation.platform import SimulatedPlatform
from holdfast.testing.simulation.program import rows_of
from holdfast.testing.simulation.programs import PROGRAMS
from holdfast.tiers.opener import RunOpener
from tests.driver.options_support import options
from tests.testing.simulation.running import Kept

EPOCHS = 3
PARTITIONS = 3
# Of a program that draws lots each attempt comes to something else.
ALIKE = sorted(PROGRAMS.keys() - {DrawProgram.name})
Rows = dict[str, list[tuple[Any, ...]]]


class Whole(Pacing):
    """All partitions, always: so that an epoch has several."""

    def next(self, input_partitions: int = 1) -> StageShape:
        return StageShape(self.partitions, preaggregate=False, shuffle=True)


class Found(NamedTuple):
    """What an epoch comes to."""

    state: Rows
    output: Rows


class Bench:
    """A program on one host, whose epochs are run by hand."""

    def __init__(self, program: str, folder: Path, world: World) -> None:
        self.storage = MemoryStorage(f"compute-{program}-{world.seed}")
        quiet = Mishaps(Random(0), {}, on=False)
        made = PROGRAMS[program]()
        platform = SimulatedPlatform(
            make=PROGRAMS[program],
            sinks={sink: NoopSink() for sink in made.sinks},
            storage=self.storage,
            inputs=Inputs(made, str(world.seed)),
            machines=Machines(world, folder / "disks", self.storage, Random(0)),
            host=Here("h"),
            scratch_root=folder,
            is_cluster=False,
            can_end=False,
            mishaps=quiet,
            draw=Random(0),
        )
        self.sources = made.sources
        self.parts = Start(platform, options(self.storage.url, folder / "local")).begin()
        self.loop: EpochLoop = self.parts.loop
        self.loop.pacing = {id_: Whole(PARTITIONS) for id_ in self.loop.pacing}

    @property
    def version(self) -> Version:
        return self.parts.ledger.version

    def given(self, epoch: int) -> Given:
        batch = SimulatedBatch((epoch,) * self.sources, (epoch + 1,) * self.sources)
        record = self.loop.time.begin(epoch, 5_000_000 + 1_500 * epoch)
        return self.loop.given(batch, record, self.version, frozenset(self.version.runs()))

    def keep(self) -> dict[str, Kept]:
        """What is staged from here on."""
        kept = {sink: Kept() for sink in self.loop.graph.sinks}
        self.loop.computer = replace(self.loop.computer, stagers=kept)
        return kept

    def computed(self, given: Given) -> tuple[Computed, Found]:
        """Compute, and record nothing."""
        kept = self.keep()
        with self.parts.ledger.writing():
            computed = self.loop.computer.compute(given)
            state = self.state(given.version.apply(computed.changes), computed)
        return computed, Found(state, output(kept))

    def recorded(self, given: Given, like: Computed) -> Found:
        """Run an epoch as a driver does."""
        kept = self.keep()
        self.loop.run(given.batch, given.record, {})
        return Found(self.state(self.version, like), output(kept))

    def state(self, version: Version, computed: Computed) -> Rows:
        opener = RunOpener(self.loop.computer.site.folder, self.storage)
        state = {}
        for part in computed.parts.values():
            clock = TableClock(part.clock.processing_time_ms, part.clock.late_ms)
            for schema in part.node.operator.tables:
                segments = version.segments(schema.table, FULL_RANGE)
                runs = [(opener.open(s.run), s.range) for s in segments]
                pieces = list(TableView(schema, runs, clock).scan())
                rows = pa.concat_tables([schema.arrow.empty_table(), *pieces])
                state[schema.table] = sorted(rows_of(rows), key=repr)
        return state


def output(kept: Mapping[str, Kept]) -> Rows:
    staged = {
        sink: [row for _, t in each.tables for row in rows_of(t)] for sink, each in kept.items()
    }
    return {sink: sorted(rows, key=repr) for sink, rows in staged.items()}


@pytest.fixture
def world() -> Iterator[World]:
    with simulating(World(1)) as world:
        yield world


def in_a_thread(world: World, body: Callable[[], None]) -> None:
    """As a driver's thread: what it does at once may come in any order."""
    thread = world.process("driver").spawn(body, "main")
    world.run(lambda: thread.ended, most_steps=1_000_000)
    if thread.error is not None:
        world.crashes.clear()
        raise thread.error


@pytest.mark.parametrize("program", ALIKE)
def test_what_is_computed_changes_nothing_and_is_what_is_recorded_then(
    program: str, tmp_path: Path, world: World
) -> None:
    def body() -> None:
        bench = Bench(program, tmp_path, world)
        for epoch in range(EPOCHS):
            given, before = bench.given(epoch), bench.version
            staged = bench.parts.ledger.staged()
            computed, first = bench.computed(given)
            again, second = bench.computed(given)
            assert second == first
            assert (again.greatest_ms, again.next_due) == (computed.greatest_ms, computed.next_due)
            assert bench.version is before
            assert bench.parts.ledger.staged() == staged
            assert bench.recorded(given, computed) == first
            assert bench.version.epoch == epoch

    in_a_thread(world, body)


@pytest.mark.parametrize("program", ALIKE)
def test_partitions_that_are_computed_apart_come_to_the_whole(
    program: str, tmp_path: Path, world: World
) -> None:
    def body() -> None:
        bench = Bench(program, tmp_path, world)
        last = [node.id for node in bench.loop.graph.nodes if node.stateful and not node.feeds]
        for epoch in range(EPOCHS):
            given = bench.given(epoch)
            whole = bench.loop.computer.compute(given)
            for id_ in last:
                apart = [
                    bench.loop.computer.compute(replace(given, wanted={id_: frozenset({number})}))
                    for number in range(PARTITIONS)
                ]
                assert [[r.partition for r in each.reports[id_]] for each in apart] == [
                    [number] for number in range(PARTITIONS)
                ]
                changes = [c for each in apart for r in each.reports[id_] for c in r.changes]
                tables = {schema.table for schema in bench.loop.graph.node(id_).operator.tables}
                found = bench.state(given.version.apply(changes), whole)
                expected = bench.state(given.version.apply(whole.changes), whole)
                assert {t: found[t] for t in tables} == {t: expected[t] for t in tables}
                rows = [sum(r.rows for r in each.reports[id_]) for each in (whole, *apart)]
                assert rows[0] == sum(rows[1:])
            bench.recorded(given, whole)

    in_a_thread(world, body)
