"""``holdfast verify``: reads everything that checkpoints name, and says what is bad."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table

from holdfast.checkpoint.entry import Checkpoint
from holdfast.cli import show
from holdfast.cli.directory import CheckpointDirectory, Directory
from holdfast.cli.verification import Problem, Report, runs_bytes, verify_checkpoints
from holdfast.errors import CorruptionError
from holdfast.storage import NotFoundError

__all__ = ["verify"]


def verify(
    directory: Directory,
    entry: Annotated[
        int | None, typer.Option(help="Only the checkpoint with this entry number.")
    ] = None,
) -> None:
    """Read every run and object that the retained checkpoints name, and check all of it.

    Ends with exit code 1 if anything is bad, and names it: the run, its object, the checkpoints
    that need it, and the newest checkpoint that is whole.
    """
    opened = CheckpointDirectory.open(directory)
    problems = _damage(opened)
    asked = (
        [opened.checkpoint(entry=entry)] if entry is not None else list(opened.log.checkpoints())
    )
    report = _verified(opened, asked)
    report.problems += problems
    if report.problems:
        report.problems = _still_needed(directory, report.problems)
    show.console.print(
        f"pipeline [bold]{escape(opened.pipeline)}[/] in {escape(directory)}", highlight=False
    )
    if asked:
        show.console.print(_totals(report))
    _conclude(report, asked, everything=entry is None)


def _damage(opened: CheckpointDirectory) -> list[Problem]:
    """Entries that can't be read. Which checkpoints they held can't be known any more."""
    problems = []
    if opened.damage is not None:
        problems.append(Problem("the log", opened.damage.message, ()))
    for number in opened.log.numbers:
        try:
            opened.log.entry(number)
        except (CorruptionError, NotFoundError) as error:
            wrong = error.message if isinstance(error, CorruptionError) else "it is missing"
            if opened.damage is None or wrong != opened.damage.message:
                problems.append(Problem(f"log entry {number}", wrong, (number,)))
    return problems


def _verified(opened: CheckpointDirectory, entries: Sequence[Checkpoint]) -> Report:
    columns = (TextColumn("reading runs"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=show.errors, transient=True) as progress:
        bar = progress.add_task("", total=runs_bytes(entries))
        return verify_checkpoints(opened.storage, entries, lambda read: progress.advance(bar, read))


def _still_needed(directory: str, problems: Sequence[Problem]) -> list[Problem]:
    """Leave out what a running pipeline has retired, and rightly deleted, in the meantime."""
    retained = set(CheckpointDirectory.open(directory).log.numbers)
    kept = []
    for problem in problems:
        entries = tuple(number for number in problem.entries if number in retained)
        if entries or not problem.entries:
            kept.append(Problem(problem.what, problem.wrong, entries))
    return kept


def _totals(report: Report) -> Table:
    table = Table()
    table.add_column("state table")
    for name in ("runs", "rows", "bytes", "bad"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, totals in sorted(report.tables.items()):
        table.add_row(
            name,
            show.count(totals.runs),
            show.count(totals.rows),
            show.size(totals.size_bytes),
            _bad(totals.bad),
        )
    objects = report.objects
    table.add_section()
    table.add_row(
        "other objects",
        show.count(objects.runs),
        "",
        show.size(objects.size_bytes),
        _bad(objects.bad),
    )
    return table


def _bad(number: int) -> str:
    return f"[red]{number}[/]" if number else "0"


def _conclude(report: Report, asked: Sequence[Checkpoint], *, everything: bool) -> None:
    if not report.problems:
        which = ", ".join(str(c.number) for c in asked[:10]) + (", …" if len(asked) > 10 else "")
        found = f"{len(asked)} checkpoints are whole (entries {which})" if asked else "none yet"
        show.console.print(f"[green]ok[/]: {found}", highlight=False)
        return
    for problem in report.problems:
        needed = ", ".join(map(str, problem.entries))
        show.errors.print(
            f"[red]bad:[/] {escape(problem.what)}: {escape(problem.wrong)}"
            + (f" [dim](needed by entries {needed})[/]" if needed else ""),
            soft_wrap=True,
            highlight=False,
        )
    whole = [c for c in asked if c.number not in report.bad_entries()]
    if not everything:
        words = "without --entry, verify says which checkpoints are whole"
    elif whole:
        words = f"the newest checkpoint that is whole is entry {whole[0].number} (epoch {whole[0].epoch})"
    else:
        words = "no checkpoint is whole"
    show.errors.print(words, soft_wrap=True, highlight=False)
    raise typer.Exit(1)
