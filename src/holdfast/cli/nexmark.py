"""``holdfast nexmark``: one of NEXMark's queries on generated events."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from holdfast.cli import show

if TYPE_CHECKING:
    from holdfast.nexmark.generator import Config
    from holdfast.nexmark.run import RunResult

__all__ = ["nexmark"]

_WIDEST = 24


def nexmark(
    query: Annotated[int, typer.Option(help="Which query: 0 to 9 or 11 to 20.")],
    events: Annotated[int, typer.Option(help="How many events to generate.")] = 1_000_000,
    events_per_epoch: Annotated[int, typer.Option(help="How many come in an epoch.")] = 100_000,
    events_per_second: Annotated[
        int, typer.Option(help="How many happen in a second of event time.")
    ] = 10_000,
    out_of_order: Annotated[
        int, typer.Option(metavar="N", help="Events come out of order in groups of N; 0: in order.")
    ] = 0,
    check: Annotated[
        bool, typer.Option("--check", help="Compare the result with Spark's batch SQL.")
    ] = False,
    rows: Annotated[int, typer.Option(help="How many rows of the result to show.")] = 5,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", help="Where to work; a new temporary folder unless given."),
    ] = None,
) -> None:
    """Run a NEXMark query on generated events, and say how fast that was."""
    from holdfast.nexmark.generator import Config

    config = Config(events_per_second=events_per_second, out_of_order=out_of_order)
    work = directory or Path(tempfile.mkdtemp(prefix="holdfast-nexmark-"))
    result = _run(query, events, events_per_epoch, config, work, check=check)
    _print(query, result, rows)
    show.console.print(
        f"\nThe result is in {escape(str(work / 'out'))}; look at the state with: "
        f"{escape(show.command('state', work / 'checkpoint'))}",
        highlight=False,
        soft_wrap=True,
    )
    raise typer.Exit(1 if result.equal is False else 0)


def _run(
    query: int, events: int, events_per_epoch: int, config: Config, work: Path, *, check: bool
) -> RunResult:
    from holdfast.nexmark.run import local_session, run_query

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
    )
    with show.console.status("starting Spark"):
        spark = local_session()
    with Progress(*columns, console=show.console) as progress:
        bar = progress.add_task("events", total=events, rate="")
        done = 0

        def on_epoch(events_done: int, seconds: float) -> None:
            nonlocal done
            rate = f"{(events_done - done) / seconds:,.0f} events/s"
            done = events_done
            progress.update(bar, completed=done, rate=rate)

        return run_query(
            spark,
            query,
            events,
            directory=work,
            events_per_epoch=events_per_epoch,
            config=config,
            check=check,
            on_epoch=on_epoch,
        )


def _print(number: int, result: RunResult, rows: int) -> None:
    total = result.result.count()
    show.console.print(f"[bold]Query {number}, {result.query.title}[/]", highlight=False)
    first = Table()
    for name in result.result.columns:
        first.add_column(Text(name))
    for row in result.result.take(rows):
        first.add_row(*(Text(_short(str(value))) for value in row))
    show.console.print(first)
    facts = Table(show_header=False)
    facts.add_column(style="bold")
    facts.add_column(justify="right")
    facts.add_row("events", show.count(result.events))
    facts.add_row("epochs", show.count(result.epochs))
    facts.add_row("rows of the result", show.count(total))
    if result.query.changes.kind != "append":
        facts.add_row("rows put out", show.count(result.published))
    facts.add_row("time", show.duration(round(result.seconds * 1000)))
    facts.add_row("throughput", f"{result.events_per_second:,.0f} events/s")
    if result.equal is not None:
        facts.add_row("equal to batch", "[green]yes[/]" if result.equal else "[red]NO[/]")
    show.console.print(facts)


def _short(text: str) -> str:
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"
