"""``holdfast adopt``: a checkpoint from the state and offsets of a Spark query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from holdfast.cli import show
from holdfast.errors import InputError

if TYPE_CHECKING:
    from holdfast.spark.adopt import OldQuery, StatefulOperator
    from holdfast.spark.adopt.contents import Contents

__all__ = ["adopt"]


def adopt(
    spark_checkpoint: Annotated[
        str,
        typer.Argument(
            metavar="SPARK_CHECKPOINT",
            help="The checkpointLocation of the Spark query, which must have stopped. Only read.",
            show_default=False,
        ),
    ],
    operator: Annotated[
        int | None,
        typer.Option(metavar="N", help="Which stateful operator; the only one unless given."),
    ] = None,
    program: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="The moved job: a function of a module or file.py that takes the Spark session "
            "and returns the pipeline.",
        ),
    ] = None,
    checkpoint_dir: Annotated[
        str | None, typer.Option(help="The checkpoint directory of the moved job: a new one.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The moved job's name.")] = None,
    show_only: Annotated[
        bool, typer.Option("--show", help="Only print what state there is.")
    ] = False,
) -> None:
    """Adopt a Spark query: the moved job continues where it stopped, with its state."""
    from holdfast.spark.adopt import OldQuery
    from holdfast.spark.adopt import adopt as take_over
    from holdfast.spark.adopt.loading import load_program, new_session

    if show_only:
        _show(OldQuery.open(new_session(), spark_checkpoint), operator)
        return
    if program is None or checkpoint_dir is None or name is None:
        raise InputError(
            "the moved job isn't named: --program, --name and --checkpoint-dir are needed",
            hint="or look at the old query's state first, with --show",
        )
    pipeline = load_program(program, new_session())
    done = take_over(pipeline, name, checkpoint_dir, spark_checkpoint, operator=operator)
    for warning in done.warnings:
        show.errors.print(f"[yellow]note:[/] {escape(warning)}", soft_wrap=True)
    for table, rows in done.rows.items():
        show.console.print(f"{show.count(rows)} rows of state in {escape(table)}", highlight=False)
    show.console.print(
        f"pipeline [bold]{escape(name)}[/] continues with epoch {done.epoch + 1}; look at its state "
        f"with: {escape(show.command('state', checkpoint_dir))}",
        highlight=False,
        soft_wrap=True,
    )


def _show(old: OldQuery, operator: int | None) -> None:
    from holdfast.spark.adopt.contents import contents

    show.console.print(f"last committed batch: {old.batch}", highlight=False)
    if old.planned > old.batch:
        show.console.print(f"begun and not committed: {old.planned}", highlight=False)
    chosen = old.operators if operator is None else (old.operator(operator),)
    for each in chosen:
        for found in contents(old, each):
            _print(each, found)


def _print(operator: StatefulOperator, found: Contents) -> None:
    show.console.print(
        f"operator {operator}: {found.what}, {show.count(found.rows)} rows", highlight=False
    )
    if not found.columns:
        return
    table = Table(title_justify="left")
    for column in found.columns:
        table.add_column(Text(column))
    for row in found.first:
        table.add_row(*map(Text, row))
    show.console.print(table)
