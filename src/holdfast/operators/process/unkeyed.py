"""``Process``: user code on rows that are not grouped by key, with operator state.

An item of operator state lies at a hash within the range of the partition that wrote it. So a change
of P hands lists out anew by itself: each partition reads what lies in its range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from holdfast.errors import InputError
from holdfast.operators.base import (
    Clock,
    Operator,
    Place,
    Received,
    Session,
    StateReader,
    Update,
)
from holdfast.operators.input_rows import CONTROL, TAG, Fields, input_row_schema, part_control
from holdfast.operators.process.broadcast import (
    BroadcastCell,
    BroadcastState,
    bound_broadcast,
    broadcast_table,
)
from holdfast.operators.process.convert import fitting, to_arrow, to_python
from holdfast.operators.process.declare import State, declared_states
from holdfast.operators.process.keyed import Metrics, SideOutputs, from_ms, watermark_of
from holdfast.operators.process.output import Collector, declared_output
from holdfast.operators.process.program import user_error
from holdfast.operators.process.rows import to_rows
from holdfast.state.columns import one_array
from holdfast.state.hashing import HashRange
from holdfast.state.keys import SortedRows, sort_rows
from holdfast.state.schema import Column, TableSchema
from holdfast.types import parse_schema, parse_type, type_words

__all__ = ["OperatorList", "PartitionContext", "PartitionOperator", "Process", "UnionList"]

_ITEM_BITS = 24


class OperatorList(State):
    """A list per partition; when P changes, the items are shared out among the new partitions.

    >>> OperatorList("long").describe()
    ': operator-list bigint'
    """

    kind = "operator-list"

    def __init__(self, type: object) -> None:  # noqa: A002 - what it is
        self.type = parse_type(type)

    def append(self, item: Any) -> None:
        """Add an item."""
        del item
        self._unbound()

    def set(self, items: Iterable[Any]) -> None:
        """Replace this partition's items."""
        del items
        self._unbound()

    def clear(self) -> None:
        """Remove this partition's items."""
        self._unbound()

    def __iter__(self) -> Iterator[Any]:
        self._unbound()

    def __len__(self) -> int:
        return self._unbound()

    def describe(self) -> str:
        """Kind and type."""
        return self._words(type_words(self.type))


class UnionList(OperatorList):
    """A list per partition, of which every partition can also read all.

    >>> UnionList("string").kind
    'union-list'
    """

    kind = "union-list"

    def all(self) -> list[Any]:
        """The items of every partition, as they were before this epoch."""
        self._unbound()


class PartitionContext(SideOutputs):
    """What a :class:`Process` may know and do beside its state: its ``ctx``.

    >>> class Tagged(Process):
    ...     output = "text string, partition long"
    ...
    ...     def process(self, rows, ctx: PartitionContext):
    ...         yield from ((row.text, ctx.partition) for row in rows)
    """

    def __init__(self, clock: Clock, place: Place, sides: Mapping[str, Collector]) -> None:
        self.epoch = clock.epoch
        self.processing_time = from_ms(clock.processing_time_ms)
        self.watermark = watermark_of(clock)
        self.input_ended = clock.at_end
        """Whether input has ended: there will be no more rows."""
        self.partition = place.partition
        self.partitions = place.partitions
        self.metrics = Metrics()
        self._sides = sides

    def side_output(self, name: str, row: Any) -> None:
        """Put a row out to a side output that the process declares in ``side_outputs``."""
        if name not in self._sides:
            raise InputError(f"there is no side output {name!r}", hint="declare it in side_outputs")
        self._sides[name].rows.append(row)
        self._sides[name].owners.append(0)


class Process:
    """User code on the rows of a partition, with operator state.

    >>> class Numbered(Process):
    ...     output = "n long, text string"
    ...     counts = OperatorList("long")
    ...
    ...     def process(self, rows, ctx):
    ...         n = sum(self.counts)
    ...         for n, row in enumerate(rows, n + 1):
    ...             yield n, row.text
    ...         self.counts.set([n])
    """

    output: ClassVar[object] = None
    side_outputs: ClassVar[Mapping[str, object]] = {}

    def open(self, ctx: PartitionContext) -> None:
        """Called once per task, before any rows."""

    def close(self) -> None:
        """Called once per task, at its end, also if it failed."""

    def process(self, rows: Sequence[Any], ctx: PartitionContext) -> Iterable[Any] | None:
        """Called with the rows of a partition in an epoch, in the order of their source."""
        raise NotImplementedError

    def process_broadcast(self, rows: Sequence[Any], ctx: PartitionContext) -> None:
        """Called in every partition with the rows of a connected control stream, before the others."""
        raise NotImplementedError(f"{type(self).__name__} has no process_broadcast")

    def checkpoint_complete(self, epoch: int) -> None:
        """Called on the driver once a checkpoint that holds the state after ``epoch`` is in the log."""


class PartitionOperator(Operator):
    """Runs a :class:`Process`."""

    deletes = True

    def __init__(
        self,
        id: str,  # noqa: A002 - the operator's word for it
        columns: Fields,
        process: Process,
        *,
        output: object = None,
        control: Fields | None = None,
    ) -> None:
        self.id = id
        self.process = process
        self.columns = tuple(columns)
        self.control = None if control is None else tuple(control)
        owner = type(process)
        declared = declared_states(owner)
        for state in declared.values():
            if not isinstance(state, OperatorList | BroadcastState):
                raise InputError(
                    f"{owner.__name__}.{state.name} is a {type(state).__name__}, which needs a key",
                    hint="use hf.OperatorList, hf.UnionList or hf.BroadcastState, or key_by first",
                )
        self.lists = {n: s for n, s in declared.items() if isinstance(s, OperatorList)}
        self.broadcast = {n: s for n, s in declared.items() if isinstance(s, BroadcastState)}
        self._output = declared_output(owner, output)
        self.side_schemas = {name: parse_schema(s) for name, s in owner.side_outputs.items()}
        self.shared_tables = frozenset(schema.table for schema in self.tables)

    @property
    def tables(self) -> tuple[TableSchema, ...]:
        """A table per list, one per broadcast state."""
        lists = [self.list_table(state) for state in self.lists.values()]
        return (*lists, *(broadcast_table(self.id, s) for s in self.broadcast.values()))

    def list_table(self, state: OperatorList) -> TableSchema:
        """The table of an operator list."""
        return TableSchema(
            f"{self.id}.{state.kind}.{state.name}",
            (Column(1, "item", pa.int64()),),
            (Column(2, "value", state.type),),
        )

    @property
    def key_columns(self) -> int:
        """Rows have no key."""
        return 0

    @cached_property
    def input_schema(self) -> pa.Schema:
        """Hash (the first of the partition's range), order, source, columns."""
        return input_row_schema((), self.columns, control=self.control or ())

    @property
    def output_schema(self) -> pa.Schema:
        """What the process puts out."""
        return self._output

    def describe(self) -> str:
        """The kind of program."""
        return "process without a key"

    def describe_states(self) -> Sequence[str]:
        """The states that the process declares."""
        return [state.describe() for state in (*self.lists.values(), *self.broadcast.values())]

    @property
    def code(self) -> object:
        """The process."""
        return self.process

    def receive(self, rows: pa.Table, clock: Clock) -> Received:
        """Set control rows apart."""
        del clock
        if self.control is None:
            return Received(rows)
        main, control = part_control(rows)
        return Received(main, control=control)

    def open(self, state: StateReader, clock: Clock, place: Place) -> Session:
        """Bind the process's state and open it."""
        return _UnkeyedSession(self, state, clock, place)


class _UnkeyedSession(Session):
    def __init__(
        self, operator: PartitionOperator, state: StateReader, clock: Clock, place: Place
    ) -> None:
        self.operator, self.clock, self.place = operator, clock, place
        self.process = operator.process
        self._main = Collector("", operator.output_schema, self.process, clock.epoch)
        self._sides = {
            n: Collector(n, s, self.process, clock.epoch) for n, s in operator.side_schemas.items()
        }
        self.context = PartitionContext(clock, place, self._sides)
        self.lists = {
            name: _OperatorListCell(operator.list_table(declared), declared, state, clock, place)
            for name, declared in operator.lists.items()
        }
        self.shared = {
            name: BroadcastCell(broadcast_table(operator.id, declared), state)
            for name, declared in operator.broadcast.items()
        }
        for name, cell in self.lists.items():
            setattr(self.process, name, _BoundList(cell))
        for name, shared in self.shared.items():
            setattr(self.process, name, bound_broadcast(shared))
        self._call("open", lambda: self.process.open(self.context))

    def control(self, rows: pa.Table) -> None:
        names = [name for name, _ in self.operator.control or ()]
        ordered = rows.sort_by(TAG).select([CONTROL + name for name in names])
        given = to_rows(ordered.rename_columns(names))
        for cell in self.shared.values():
            cell.open_for_changes = True
        self._call("process_broadcast", lambda: self.process.process_broadcast(given, self.context))
        for cell in self.shared.values():
            cell.open_for_changes = False

    def update(self, rows: SortedRows, within: HashRange) -> Update:
        if within.first != self.place.range.first:  # all rows are in the first piece
            return Update({}, self.operator.output_schema.empty_table(), 0)
        if rows.table.num_rows:
            table = rows.table.select([name for name, _ in self.operator.columns])
            self._call("process", lambda: self._run(table))
        changes: dict[str, pa.Table] = {}
        for cell in self.lists.values():
            changed = cell.finish()
            if changed is not None:
                changes[cell.schema.table] = changed
        for shared in self.shared.values():
            entries = shared.finish()
            if entries is not None and self.place.range.first == 0:
                changes[shared.schema.table] = entries
        sides = {n: side.table(self._whose) for n, side in self._sides.items() if side.rows}
        counted, self.context.metrics.counts = self.context.metrics.counts, {}
        return Update(changes, self._main.table(self._whose), 0, sides, counted)

    def close(self) -> None:
        self._call("close", self.process.close)

    def _run(self, table: pa.Table) -> None:
        put_out = self.process.process(to_rows(table), self.context)
        if put_out is not None:
            self._main.rows += put_out
            self._main.owners += [0] * (len(self._main.rows) - len(self._main.owners))

    def _whose(self, owner: int) -> str:
        del owner
        return f"partition {self.place.partition}"

    def _call(self, what: str, call: Any) -> None:
        try:
            call()
        except Exception as error:
            name = f"{type(self.process).__name__}.{what}"
            where = {"partition": self.place.partition}
            raise user_error(error, name, where, self.clock.epoch) from error


class _OperatorListCell:
    """The items of one list that this partition owns."""

    def __init__(
        self,
        schema: TableSchema,
        declared: OperatorList,
        state: StateReader,
        clock: Clock,
        place: Place,
    ) -> None:
        self.schema, self.declared = schema, declared
        self._state, self._clock, self._place = state, clock, place
        self._before: pa.Table | None = None
        self._everyone: list[Any] | None = None
        self._items: list[Any] = []
        self._changed = False

    @property
    def items(self) -> list[Any]:
        """This partition's items."""
        self._load()
        return self._items

    def everyone(self) -> list[Any]:
        """The items of all partitions before this epoch."""
        self._load()
        assert self._everyone is not None
        return list(self._everyone)

    def replace(self, items: Iterable[Any]) -> None:
        """Set this partition's items."""
        self._load()
        fit = fitting(self.declared.name, self.declared.type, also_range=True)
        self._items = [fit(item) for item in items]
        self._changed = True

    def _load(self) -> None:
        if self._before is not None:
            return
        pieces = list(self._state.scan(self.schema.table))
        table = pa.concat_tables(pieces) if pieces else self.schema.arrow.empty_table()
        table = table.sort_by("item")
        self._everyone = to_python(table.column("value"))
        hashes = one_array(table.column(0)).to_numpy()
        span = self._place.range
        mine = (hashes >= np.uint64(span.first)) & (hashes <= np.uint64(span.last))
        self._before = table.filter(pa.array(mine))
        self._items = to_python(self._before.column("value"))

    def finish(self) -> pa.Table | None:
        """Rows that take the old items out and put the new ones in."""
        if not self._changed or self._before is None:
            return None
        old, count, span = self._before, len(self._items), self._place.range
        width = span.last - span.first + 1
        hashes = [span.first + width * i // max(1, count) for i in range(count)]
        first = self._clock.epoch << _ITEM_BITS
        columns = [
            pa.concat_arrays([one_array(old.column(0)), pa.array(hashes, pa.uint64())]),
            pa.concat_arrays(
                [one_array(old.column(1)), pa.array(range(first, first + count), pa.int64())]
            ),
            pa.concat_arrays([one_array(old.column(2)), to_arrow(self._items, self.declared.type)]),
            pa.array([True] * old.num_rows + [False] * count),
        ]
        table = pa.Table.from_arrays(columns, schema=self.schema.arrow_with_tombstones)
        self._changed = False
        return sort_rows(table, 1).table


class _BoundList(UnionList):
    def __init__(self, cell: _OperatorListCell) -> None:
        self._cell = cell

    def append(self, item: Any) -> None:
        self._cell.replace([*self._cell.items, item])

    def set(self, items: Iterable[Any]) -> None:
        self._cell.replace(items)

    def clear(self) -> None:
        self._cell.replace(())

    def all(self) -> list[Any]:
        return self._cell.everyone()

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._cell.items))

    def __len__(self) -> int:
        return len(self._cell.items)
