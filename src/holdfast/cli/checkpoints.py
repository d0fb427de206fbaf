"""``holdfast checkpoints``: what can be restored."""

from __future__ import annotations

import time

from rich.markup import escape
from rich.table import Table

from holdfast.checkpoint.entry import Checkpoint
from holdfast.cli import show
from holdfast.cli.directory import CheckpointDirectory, Directory

__all__ = ["checkpoints"]


def checkpoints(directory: Directory) -> None:
    """List the checkpoints that are retained, newest first."""
    opened = CheckpointDirectory.open(directory)
    found = list(opened.log.checkpoints())
    show.console.print(
        f"pipeline [bold]{escape(opened.pipeline)}[/] in {escape(directory)}", highlight=False
    )
    if opened.damage is not None:
        show.errors.print(f"[red]damaged:[/] {escape(str(opened.damage))}", soft_wrap=True)
    if not found:
        show.console.print("no checkpoint yet")
        return
    show.console.print(_table(found, time.time() * 1000))


def _table(found: list[Checkpoint], now_ms: float) -> Table:
    table = Table()
    for name in ("entry", "epoch", "age", "state rows", "new", "shared", "duration"):
        table.add_column(name, justify="right", no_wrap=True)
    savepoints = any(entry.savepoint for entry in found)
    if savepoints:
        table.add_column("savepoint")
    for entry in found:
        table.add_row(
            str(entry.number),
            str(entry.epoch),
            show.age((now_ms - entry.written_ms) / 1000),
            show.count(entry.state_rows),
            show.size(entry.new_bytes),
            show.size(entry.shared_bytes),
            show.duration(entry.duration_ms),
            *([escape(entry.savepoint or "")] if savepoints else []),
        )
    return table
