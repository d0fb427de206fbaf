"""``holdfast state``: prints rows of the state that a checkpoint keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from holdfast.checkpoint.entry import Checkpoint
from holdfast.checkpoint.reader import stored_tables
from holdfast.cli import show
from holdfast.cli.directory import CheckpointDirectory, Directory, held_checkpoint
from holdfast.cli.results import finisher
from holdfast.cli.values import parse_value, shown
from holdfast.errors import InputError
from holdfast.state.columns import equal, one_array
from holdfast.state.schema import HASH, TableSchema
from holdfast.state.text import on_one_line, python_values
from holdfast.state.view import TableView

__all__ = ["state"]


def state(
    directory: Directory,
    epoch: Annotated[
        int | None, typer.Option(help="The state after this epoch; the newest unless given.")
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Only rows of this key; repeat for more columns."),
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="At most this many rows per table.")] = 20,
    operator: Annotated[
        str | None, typer.Option(metavar="ID", help="Only the state of this operator.")
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Aggregates as they are stored: buffers, not results.")
    ] = False,
) -> None:
    """Print rows of the state after a retained epoch.

    Keys are found by reading through the table, because their hashes are Spark's to compute.
    """
    wanted = _parse_keys(key or [])
    with held_checkpoint(directory, epoch) as (opened, entry):
        if opened.damage is not None:
            show.errors.print(f"[red]damaged:[/] {escape(str(opened.damage))}", soft_wrap=True)
        _print_state(opened, entry, wanted, limit, operator, raw=raw)


def _print_state(
    opened: CheckpointDirectory,
    entry: Checkpoint,
    wanted: Mapping[str, str],
    limit: int,
    operator: str | None,
    *,
    raw: bool,
) -> None:
    views = _chosen(stored_tables(entry, opened.storage), operator)
    filters = {name: _filters(view.schema, wanted) for name, view in views.items()}
    show.console.print(
        f"pipeline [bold]{escape(opened.pipeline)}[/] after epoch {entry.epoch} (entry {entry.number}), "
        f"{show.count(entry.state_rows)} rows of state",
        highlight=False,
    )
    for name, view in views.items():
        rows, more = _rows(view, filters[name], limit)
        show.console.print(_table(view.schema, rows if raw else _results(entry, view.schema, rows)))
        if more:
            show.console.print(f"[dim]only the first {limit} rows; --limit shows more[/]")


def _chosen(views: Mapping[str, TableView], operator: str | None) -> dict[str, TableView]:
    """The tables of an operator; of all of them unless one is named."""
    chosen = {
        name: view
        for name, view in views.items()
        if (operator is None or name.partition(".")[0] == operator) and not view.schema.timed
    }
    if not chosen:
        operators = sorted({name.partition(".")[0] for name in views})
        raise InputError(
            f"there is no operator {operator!r} with state",
            hint=f"use one of: {', '.join(operators) or '(none has state)'}",
        )
    return chosen


def _parse_keys(pairs: Sequence[str]) -> dict[str, str]:
    wanted = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InputError(
                f"--key {pair} is not of the form NAME=VALUE", hint="for example --key word=apple"
            )
        wanted[name] = value
    return wanted


def _filters(schema: TableSchema, wanted: Mapping[str, str]) -> dict[str, pa.Scalar]:
    """The value that each named key column must have."""
    types = {column.name: column.type for column in schema.keys}
    for name in wanted:
        if name not in types:
            raise InputError(
                f"table {schema.table!r} has no key column {name!r}",
                hint=f"its key columns are: {', '.join(types)}",
            )
    return {name: parse_value(name, text, types[name]) for name, text in wanted.items()}


def _rows(view: TableView, filters: Mapping[str, pa.Scalar], limit: int) -> tuple[pa.Table, bool]:
    """The first ``limit`` rows that pass the filters, and whether there are more."""
    found: list[pa.Table] = []
    rows = 0
    for piece in view.scan():
        # One more than asked for tells that there are more.
        kept = _matching(piece, filters).slice(0, limit + 1 - rows)
        found.append(kept)
        rows += kept.num_rows
        if rows > limit:
            break
    table = pa.concat_tables(found) if found else view.schema.arrow.empty_table()
    return table.slice(0, limit), rows > limit


def _matching(piece: pa.Table, filters: Mapping[str, pa.Scalar]) -> pa.Table:
    if not filters:
        return piece
    passes = np.ones(piece.num_rows, np.bool_)
    for name, value in filters.items():
        column = one_array(piece.column(name))
        passes &= equal(column, pa.repeat(value, len(column)))
    return piece.filter(pa.array(passes))


def _results(entry: Checkpoint, schema: TableSchema, rows: pa.Table) -> pa.Table:
    """Finish aggregates, where the entry says enough of what they are."""
    operator = schema.table.partition(".")[0]
    finish = finisher(schema, entry.program.get(operator, ""))
    return rows if finish is None else finish(rows)


def _table(schema: TableSchema, rows: pa.Table) -> Table:
    table = Table(title=Text(on_one_line(schema.table)), title_justify="left")
    fields = [field for field in rows.schema if field.name != HASH]
    for field in fields:
        is_number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        style = "bold" if field.name in schema.key_names else None
        table.add_column(
            Text(on_one_line(field.name)), justify="right" if is_number else "left", style=style
        )
    columns: list[list[Any]] = [python_values(rows.column(field.name)) for field in fields]
    for values in zip(*columns, strict=True):
        table.add_row(*(Text("null", "dim") if v is None else Text(shown(v)) for v in values))
    return table
