"""A pipeline as a graph: sources, operators in the order they run, and sinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import Column, DataFrame

from holdfast.checkpoint.time import Watermark
from holdfast.driver.graph import Columns, Graph, Node, NodeFeed, SinkPlace
from holdfast.errors import InputError, InternalError
from holdfast.operators.description import Description, digest
from holdfast.sinks.base import Sink
from holdfast.spark.flow.branch import Branch, LoopStart, Output, StreamSource, WatermarkSpec
from holdfast.spark.flow.emit import EmitPlan
from holdfast.spark.jvm.renaming import renamed_columns
from holdfast.spark.jvm.trees import plan_words
from holdfast.spark.plans.base import OperatorPlan
from holdfast.spark.plans.rows import columns_of
from holdfast.spark.said import SaidPipeline, SaidResult, SaidStream, SaidWritten

__all__ = ["FlowGraph", "PlannedNode", "SteppedFeed", "build_graph"]

Steps = tuple[Callable[[DataFrame], DataFrame], ...]


@dataclass(frozen=True)
class SteppedFeed(NodeFeed):
    """Rows on their way to an operator, and the steps they take on it."""

    steps: Steps = ()


@dataclass(kw_only=True)
class PlannedNode(Node[SteppedFeed]):
    """An operator in its place, and how Spark gets its rows there."""

    plan: OperatorPlan
    result: SaidResult | None
    columns: list[Column] | None = None
    """The columns that its tasks get: made in the first epoch, for each is a call to the JVM."""


@dataclass(kw_only=True)
class FlowGraph(Graph[PlannedNode]):
    """A pipeline of streaming DataFrames."""

    sources: list[DataFrame]

    @cached_property
    def descriptions(self) -> dict[str, Description]:  # looked at often
        """The operators that have state as log entries keep them: also by what they read."""
        ids = {id(node.result): node.id for node in self.nodes}
        return {
            node.id: Description.of(node.operator).reading(_reads(node, ids))
            for node in self.nodes
            if node.stateful
        }


def _reads(node: PlannedNode, ids: Mapping[int, str]) -> str:
    """A digest of where an operator's rows come from, the steps they take, and what is made of them."""
    assert node.result is not None
    words = [
        f"{ids[id(branch.origin.of)]}.{branch.origin.name}: {plan_words(branch.df)}"
        if isinstance(branch.origin, Output)
        else plan_words(branch.df)
        for stream in node.result.inputs
        for branch in stream.branches
    ]
    return digest("\n".join([*words, *node.plan.expressions]))


def build_graph(pipeline: SaidPipeline) -> FlowGraph:
    """Put a pipeline's operators in order, name them, and find out what they read.

    Every operator is planned anew; no Spark job runs.
    """
    results = _in_order(pipeline)
    ids = _names(results)
    builder = _Builder(ids, _sources(pipeline, results))
    for result in results:
        builder.add(result)
    for number, written in enumerate(pipeline.outputs):
        builder.write(number, written)
    return builder.graph


def _in_order(pipeline: SaidPipeline) -> list[SaidResult]:
    """All operators that lead to a sink, each behind those it reads."""
    done: dict[int, SaidResult] = {}
    open_: set[int] = set()
    loops: list[SaidResult] = []

    def visit(result: SaidResult) -> None:
        if id(result) in done:
            return
        if id(result) in open_:
            raise InputError(
                f"operator {result.label!r} reads its own results",
                hint="rows that go round go through stream.iterate(body)",
            )
        open_.add(id(result))
        for stream in result.inputs:
            follow(stream)
        done[id(result)] = result

    def follow(stream: SaidStream) -> None:
        for branch in stream.branches:
            if isinstance(branch.origin, LoopStart):
                loops.append(branch.origin.of)
            elif isinstance(branch.origin, Output):
                visit(branch.origin.of)

    for written in pipeline.outputs:
        follow(written.stream)
    # The end of a loop comes last: what it reads is read in the next epoch.
    while loops:
        visit(loops.pop(0))
    return list(done.values())


def _names(results: list[SaidResult]) -> dict[int, str]:
    """A name for every operator: its own, or that of its kind with a number."""
    taken: set[str] = set()
    for result in results:
        if result.name is None:
            continue
        if result.name in taken:
            raise InputError(
                f"two operators are named {result.name!r}",
                hint="state is found by name: give each its own with .named(...)",
            )
        taken.add(result.name)
    ids = {}
    for result in results:
        name, number = result.name or result.kind, 1
        while result.name is None and name in taken:
            number += 1
            name = f"{result.kind}-{number}"
        taken.add(name)
        ids[id(result)] = name
    return ids


@dataclass(frozen=True)
class _Sourced:
    """A source as the query reads it."""

    index: int
    whole: bool
    """Whether the steps behind it are part of the streamed DataFrame."""


def _sources(
    pipeline: SaidPipeline, results: list[SaidResult]
) -> tuple[list[DataFrame], dict[int, _Sourced]]:
    """The DataFrames that the query streams, and which is whose.

    A source with one reader is streamed with the steps behind it, so that Spark reads only what they
    need; one with several is streamed as it was given, and each reader's steps are taken in every
    epoch.
    """
    streams = [s for result in results for s in result.inputs]
    streams += [written.stream for written in pipeline.outputs]
    ends: dict[int, list[Branch]] = {}
    for stream in streams:
        for branch in stream.branches:
            if isinstance(branch.origin, StreamSource):
                ends.setdefault(id(branch.origin), []).append(branch)
    frames: list[DataFrame] = []
    known: dict[int, _Sourced] = {}
    for origin, branches in ends.items():
        whole = len({id(branch.df) for branch in branches}) == 1
        first = branches[0]
        assert isinstance(first.origin, StreamSource)
        known[origin] = _Sourced(len(frames), whole)
        frames.append(first.df if whole else first.origin.df)
    return frames, known


class _Builder:
    def __init__(
        self, ids: dict[int, str], sources: tuple[list[DataFrame], dict[int, _Sourced]]
    ) -> None:
        frames, self.sources = sources
        self.ids = ids
        self.graph = FlowGraph([], {}, {}, sources=frames)
        self.times: dict[tuple[int, WatermarkSpec], str] = {}
        self.nodes: dict[str, PlannedNode] = {}

    def add(self, result: SaidResult) -> None:
        """Plan an operator."""
        plan = result.plan(self.ids[id(result)])
        derived = any(stream.derived for stream in result.inputs)
        behind = max(stream.behind_ms for stream in result.inputs)
        ports = tuple(
            tuple(self._feed(branch, port, timed=result.timed) for branch in stream.branches)
            for stream, port in zip(result.inputs, plan.ports, strict=True)
        )
        self._node(_planned(self.ids[id(result)], plan, ports, derived, behind, result))

    def write(self, number: int, written: SaidWritten) -> None:
        """Attach sinks: to the operator itself, or behind the steps that its results take."""
        branches = written.stream.branches
        origin = branches[0].origin
        columns = self._chosen(written.stream)
        if columns is not None or self._is_whole(written.stream):
            assert isinstance(origin, Output)
            node, output = self.nodes[self.ids[id(origin.of)]], origin.name
        else:
            emit = EmitPlan(f"emit-{number}", written.stream.df)
            ports = tuple(self._feed(branch, "main", timed=False) for branch in branches)
            node, output = _planned(emit.operator.id, emit, (ports,), True, 0, None), ""
            self._node(node)
        for sink in written.sinks:
            self._sink(f"sink-{self._count()}", sink, node, output, columns)
        for name, sink in written.side_outputs.items():
            place = f"side-{name}"
            if place in self.graph.sinks:
                place = f"side-{node.id}-{name}"
            self._sink(place, sink, node, name)

    def _count(self) -> int:
        return sum(sink.startswith("sink-") for sink in self.graph.sinks)

    def _is_whole(self, stream: SaidStream) -> bool:
        """Whether a stream is an operator's output as it is."""
        branch = stream.branches[0]
        is_output = isinstance(branch.origin, Output) and not isinstance(branch.origin, LoopStart)
        return len(stream.branches) == 1 and is_output and not branch.steps

    def _chosen(self, stream: SaidStream) -> Columns | None:
        """If a stream is an operator's output with columns chosen and renamed: which."""
        branch = stream.branches[0]
        origin = branch.origin
        if len(stream.branches) > 1 or not branch.steps or not isinstance(origin, Output):
            return None
        if isinstance(origin, LoopStart):
            return None
        # Also refuses two columns of one name.
        columns_of(stream.df)
        schema = self.nodes[self.ids[id(origin.of)]].schema(origin.name)
        return renamed_columns(stream.df.sparkSession, schema, branch.steps)

    def _sink(
        self, place: str, sink: Sink, node: PlannedNode, output: str, columns: Columns | None = None
    ) -> None:
        if any(known.sink is sink for known in self.graph.sinks.values()):
            raise InputError(
                f"the sink {sink.describe()} is used twice",
                hint="union the streams that should go there, or make two sinks",
            )
        node.sinks[place] = output
        self.graph.sinks[place] = SinkPlace(sink, node, output, columns)

    def _node(self, node: PlannedNode) -> None:
        self.graph.nodes.append(node)
        self.nodes[node.id] = node

    def _feed(self, branch: Branch, port: str, *, timed: bool) -> SteppedFeed:
        if isinstance(branch.origin, StreamSource):
            source = self.sources[id(branch.origin)]
            steps = () if source.whole else branch.steps
            time = None
            if timed and branch.watermark is not None:
                time = self._time(source.index, branch.watermark, port)
            return SteppedFeed(source.index, "", "", time, steps=steps)
        if isinstance(branch.origin, LoopStart):
            of = self.ids[id(branch.origin.of)]
            return SteppedFeed(None, of, "", None, loop=True, steps=branch.steps)
        node = self.nodes.get(self.ids.get(id(branch.origin.of), ""))
        if node is None:
            raise InternalError(f"operator {branch.origin.of.label!r} is read before it is planned")
        node.readers[branch.origin.name] = node.readers.get(branch.origin.name, 0) + 1
        return SteppedFeed(None, node.id, branch.origin.name, None, steps=branch.steps)

    def _time(self, source: int, spec: WatermarkSpec, port: str) -> str:
        """The name of a source's watermark: logs of pipelines with one operator have these."""
        known = self.times.get((source, spec))
        if known is not None:
            return known
        name = "control" if port == "control" else "main" if not self.times else f"source-{source}"
        while name in self.graph.watermarks:
            name += f"-{spec.column}"
        self.times[source, spec] = name
        self.graph.watermarks[name] = Watermark(spec.delay_ms, spec.idle_ms)
        return name


def _planned(
    id_: str,
    plan: OperatorPlan,
    ports: tuple[tuple[SteppedFeed, ...], ...],
    derived: bool,
    behind_ms: int,
    result: SaidResult | None,
) -> PlannedNode:
    return PlannedNode(
        id_,
        plan.operator,
        plan.ports,
        ports,
        derived,
        behind_ms,
        is_named=result is None or result.name is not None,
        priority=result.priority if result is not None else 0,
        may_preaggregate=plan.may_preaggregate,
        must_preaggregate=plan.must_preaggregate,
        on_checkpoint=result.checkpoint_complete if result is not None else None,
        plan=plan,
        result=result,
    )
