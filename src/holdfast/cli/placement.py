"""``holdfast placement``: where partitions ran, and why there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from holdfast.checkpoint.entry import Checkpoint, PlacedPartition
from holdfast.cli import show
from holdfast.cli.directory import CheckpointDirectory, Directory
from holdfast.state.run import Run

__all__ = ["placement"]

_NAMES_SHOWN = 4


def placement(
    directory: Directory,
    epoch: Annotated[
        int | None, typer.Option(help="The checkpoint of this epoch; the newest unless given.")
    ] = None,
) -> None:
    """Print where the partitions of a checkpoint's last epoch ran, why, and what they read."""
    opened = CheckpointDirectory.open(directory)
    entry = opened.checkpoint(epoch=epoch)
    show.console.print(
        f"pipeline [bold]{escape(opened.pipeline)}[/], epoch {entry.epoch} (entry {entry.number})",
        highlight=False,
    )
    if entry.placement:
        show.console.print(_partitions(entry.placement))
    else:
        show.console.print(
            "no placement is recorded in this entry: its driver ran in local mode, where there is "
            "one host and nothing to place",
            highlight=False,
            soft_wrap=True,
        )
    hosts = sorted({placed.host for placed in entry.placement} | set(_runs_by_host(entry)))
    if hosts:
        show.console.print(_hosts(hosts, entry))


def _partitions(placed: Sequence[PlacedPartition]) -> Table:
    title = "where partitions ran, and the state they read there and over the network"
    table = Table(title=Text(title), title_justify="left")
    table.add_column("partition", justify="right")
    table.add_column("host", style="bold", no_wrap=True)
    table.add_column("local", justify="right", no_wrap=True)
    table.add_column("remote", justify="right", no_wrap=True)
    table.add_column("why")
    for one in sorted(placed, key=lambda one: one.partition):
        table.add_row(
            str(one.partition),
            Text(one.host),
            show.size(one.local_bytes),
            show.size(one.remote_bytes),
            Text(one.why),
        )
    return table


def _hosts(hosts: Sequence[str], entry: Checkpoint) -> Table:
    title = "what hosts ran, and the runs on their disks"
    table = Table(title=Text(title), title_justify="left")
    table.add_column("host", style="bold", no_wrap=True)
    for name in ("partitions", "local", "remote", "runs", "on disk"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("which runs")
    runs = _runs_by_host(entry)
    for host in hosts:
        mine = [one for one in entry.placement if one.host == host]
        held = runs.get(host, [])
        table.add_row(
            Text(host),
            str(len(mine)),
            show.size(sum(one.local_bytes for one in mine)),
            show.size(sum(one.remote_bytes for one in mine)),
            str(len(held)),
            show.size(sum(run.local.size_bytes for run in held if run.local is not None)),
            Text(_names(held)),
        )
    return table


def _runs_by_host(entry: Checkpoint) -> dict[str, list[Run]]:
    """Per host the runs whose local form it holds, as far as the entry knows."""
    found: dict[str, list[Run]] = {}
    for run in entry.runs:
        for host in run.local.hosts if run.local is not None else ():
            found.setdefault(host, []).append(run)
    return found


def _names(runs: Sequence[Run]) -> str:
    """The largest runs by name, and how many more there are."""
    largest = sorted(runs, key=lambda run: (-run.size_bytes, run.name))
    names = ", ".join(f"{run.name} ({run.table})" for run in largest[:_NAMES_SHOWN])
    more = len(runs) - _NAMES_SHOWN
    return f"{names} and {more} more" if more > 0 else names
