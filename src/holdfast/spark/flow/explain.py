"""A pipeline in words: its operators, what they keep and read, and the stages that Spark will run."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.spark.flow.graph import FlowGraph, PlannedNode, SteppedFeed
from holdfast.spark.jvm.capabilities import slower
from holdfast.state.schema import TableSchema

__all__ = ["explain"]


def explain(graph: FlowGraph) -> str:
    """A page for people."""
    lines = ["Sources"]
    for number, frame in enumerate(graph.sources):
        fields = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in frame.schema.fields)
        lines.append(f"  [{number}] {fields}")
    if graph.needs_ticks:
        lines.append("  and one that moves every second: something here goes by time")
    for name, watermark in graph.watermarks.items():
        idle = f", idle after {watermark.idle_ms} ms" if watermark.idle_ms is not None else ""
        lines.append(f"  watermark {name}: greatest event time - {watermark.delay_ms} ms{idle}")
    lines.append("Operators, each a stage of one Spark job per epoch")
    for number, node in enumerate(graph.nodes, 1):
        lines += _node(graph, number, node)
    if off := slower(graph.sources[0].sparkSession.sparkContext):
        lines.append("Slower on this Spark than on others")
        lines += (f"  {each}" for each in off)
    return "\n".join(lines)


def _node(graph: FlowGraph, number: int, node: PlannedNode) -> Iterator[str]:
    yield f"  {number}. {node.id}: {node.operator.describe().splitlines()[0]}"
    for port, feeds in zip(node.plan.ports, node.ports, strict=True):
        for feed in feeds:
            yield f"     reads {_feed(feed)}" + (f" as {port}" if len(node.ports) > 1 else "")
    if node.stateful:
        keys = ", ".join(node.operator.key_names)
        yield f"     shuffle by {'hash of ' + keys if keys else 'where rows come from'}"
        if node.plan.may_preaggregate:
            yield "     rows are grouped before the shuffle when that sends less"
    else:
        yield "     no shuffle, no state"
    for schema in node.operator.tables:
        yield f"     state {_table(schema)}"
    if node.stateful and graph.watermarks and (node.derived or node.behind_ms):
        behind = f", {node.behind_ms} ms behind" if node.behind_ms else ""
        yield f"     time: the pipeline's watermark{behind}"
    if sum(node.readers.values()) > 1:
        yield "     its results have several readers: one more shuffle, so that they are made once"
    for sink, output in node.sinks.items():
        what = f"side output {output!r}" if output else "results"
        yield f"     {what} to {sink}: {graph.sinks[sink].sink.describe()}"


def _feed(feed: SteppedFeed) -> str:
    steps = f", {len(feed.steps)} steps" if feed.steps else ""
    time = f", watermark {feed.time}" if feed.time else ""
    if feed.source is not None:
        return f"source [{feed.source}]{steps}{time}"
    if feed.loop:
        return f"what {feed.node} kept from the epoch before{steps}"
    side = f" ({feed.output})" if feed.output else ""
    return f"{feed.node}{side}{steps}"


def _table(schema: TableSchema) -> str:
    keys = schema.key_names
    words = ", ".join(keys[: schema.prefix] if schema.prefix else keys) or "nothing"
    if schema.prefix:
        words += " | " + ", ".join(keys[schema.prefix :])
    if schema.timed:
        return f"{schema.table}: by {schema.timed} time, of {words}"
    values = ", ".join(schema.value_names)
    return f"{schema.table}: by {words}" + (f"; {values}" if values else "")
