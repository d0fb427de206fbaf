"""A pipeline as its driver sees it: operators in the order they run, what feeds them, and sinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import pyarrow as pa

from holdfast.checkpoint.time import Watermark
from holdfast.operators.base import Operator
from holdfast.operators.description import Description
from holdfast.sinks.base import Sink
from holdfast.state.schema import TableSchema

__all__ = ["Columns", "Graph", "Node", "NodeFeed", "SinkPlace", "times_of"]

Columns = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class NodeFeed:
    """Rows of a source, or of an operator's output, on their way to an operator."""

    source: int | None
    """The source's number; None if the rows are of a node."""
    node: str
    output: str
    time: str | None
    """Which of the pipeline's watermarks follows these rows."""
    loop: bool = False
    """Whether the rows are those that the epoch before fed back to the node."""


F = TypeVar("F", bound=NodeFeed)


@dataclass
class Node(Generic[F]):
    """An operator in its place."""

    id: str
    operator: Operator
    port_names: tuple[str, ...]
    ports: tuple[tuple[F, ...], ...]
    """For each of them what feeds it."""
    derived: bool
    """Whether it reads other operators' results."""
    behind_ms: int
    """How far its time is behind the pipeline's watermark."""
    is_named: bool = True
    """Whether its name is its own, rather than that of its kind and its place."""
    priority: int = 0
    """Whose state is restored before that of others."""
    may_preaggregate: bool = False
    """Whether its rows can be grouped before they are sent."""
    must_preaggregate: bool = False
    """Whether they have to be."""
    on_checkpoint: Callable[[int], None] | None = None
    """User code that is told which epoch the log holds."""
    readers: dict[str, int] = field(default_factory=dict)
    """How many feeds read each of its outputs ("" for the main one)."""
    sinks: dict[str, str] = field(default_factory=dict)
    """Which sinks get which of its outputs."""

    @property
    def stateful(self) -> bool:
        """Whether it has state."""
        return bool(self.operator.tables)

    @property
    def feeds(self) -> tuple[str, ...]:
        """The outputs that other nodes read."""
        return tuple(self.readers)

    def schema(self, output: str) -> pa.Schema:
        """The columns of an output."""
        return self.operator.side_schemas[output] if output else self.operator.output_schema


AnyNode = Node[NodeFeed]
N = TypeVar("N", bound=Node)  # type: ignore[type-arg] # whatever its feeds are


@dataclass(frozen=True)
class SinkPlace(Generic[N]):
    """A sink, and what it gets."""

    sink: Sink
    node: N
    output: str
    columns: Columns | None = None
    """Which columns of the output it gets, and under which names; None for all as they are."""

    @property
    def schema(self) -> pa.Schema:
        """The columns it gets."""
        whole = self.node.schema(self.output)
        if self.columns is None:
            return whole
        return pa.schema([(name, whole.field(source).type) for source, name in self.columns])

    @property
    def key_names(self) -> tuple[str, ...]:
        """The columns that its rows are keyed by, as far as it gets them."""
        keys = self.node.operator.key_names
        if self.columns is None:
            return tuple(keys)
        names = dict(self.columns)
        return tuple(names[key] for key in keys if key in names)


@dataclass
class Graph(Generic[N]):
    """A whole pipeline."""

    nodes: list[N]
    """In an order in which every node comes behind those it reads."""
    sinks: dict[str, SinkPlace[N]]
    watermarks: dict[str, Watermark]

    @property
    def operators(self) -> list[Operator]:
        """The operators that have state."""
        return [node.operator for node in self.nodes if node.stateful]

    @property
    def descriptions(self) -> Mapping[str, Description]:
        """Those operators as log entries keep them."""
        return {node.id: Description.of(node.operator) for node in self.nodes if node.stateful}

    @property
    def unnamed(self) -> list[str]:
        """Those of them that are called by their kind and their place in the program."""
        return [node.id for node in self.nodes if node.stateful and not node.is_named]

    @property
    def tables(self) -> dict[str, TableSchema]:
        """All state tables by name."""
        return {schema.table: schema for op in self.operators for schema in op.tables}

    @property
    def behind_ms(self) -> dict[str, int]:
        """Per table how far its time is behind the pipeline's watermark, if it is."""
        return {
            schema.table: node.behind_ms
            for node in self.nodes
            for schema in node.operator.tables
            if node.behind_ms
        }

    @property
    def priorities(self) -> dict[str, int]:
        """Whose state is restored before that of others."""
        return {node.id: node.priority for node in self.nodes if node.priority}

    @property
    def needs_ticks(self) -> bool:
        """Whether epochs without rows can change something."""
        return any(node.operator.needs_ticks for node in self.nodes)

    @property
    def begins_with_rows(self) -> bool:
        """Whether the first epoch has rows that come from no source."""
        return any(node.operator.begins_with_rows for node in self.nodes)

    def node(self, id: str) -> N:  # noqa: A002
        """The node of this name."""
        return next(node for node in self.nodes if node.id == id)


def times_of(node: N) -> Mapping[str, tuple[str | None, ...]]:
    """Per port of a node the watermarks that its feeds' rows move."""
    ports = zip(node.port_names, node.ports, strict=True)
    return {port: tuple(feed.time for feed in feeds) for port, feeds in ports}
