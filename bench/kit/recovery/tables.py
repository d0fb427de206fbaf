"""The tables of the recovery benchmark."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.table import Table

from bench.kit.recovery.published import PUBLISHED_MS
from bench.kit.recovery.records import Bound, Built, Failure, Restore, middle

__all__ = ["Row", "beside_published", "bounds", "others", "restores", "rows", "steps"]

Row = tuple[str, ...]


def chosen(
    failures: Sequence[Failure],
    megabytes: int,
    arrangement: str,
    rate: str | None,
    *,
    kind: str = "host",
    engine: str = "holdfast",
) -> list[Failure]:
    """The repetitions of one failure."""
    return [
        f
        for f in failures
        if (f.kind, f.engine, f.megabytes) == (kind, engine, megabytes)
        and (f.arrangement, f.rate) == (arrangement, rate)
    ]


def rows(built: Sequence[Built], failures: Sequence[Failure], rate: str) -> list[Row]:
    """A line per size: the published figures, then ours, in milliseconds from kill to usable.

    >>> built = [Built("holdfast", 10, 400, 300, 1.0, 7_000_000)]
    >>> rows(built, [], "200mbit")
    [('10', '400', '300', '7', '1095', '853', '—', '—', '—', '—')]
    """
    lines = []
    for state in built:
        if state.engine != "holdfast":
            continue
        published = PUBLISHED_MS.get(state.megabytes)
        ours = [
            milliseconds(middle(chosen(failures, state.megabytes, where, speed), _usable))
            for speed in (None, rate)
            for where in ("local", "remote")
        ]
        lines.append(
            (
                f"{state.megabytes}",
                f"{state.records:,}",
                f"{state.keys:,}",
                "—" if state.stored_bytes is None else f"{state.stored_bytes / 1e6:.0f}",
                *(("—", "—") if published is None else map(str, published)),
                *ours,
            )
        )
    return lines


def beside_published(built: Sequence[Built], failures: Sequence[Failure], rate: str) -> Table:
    """The published table beside ours."""
    table = Table(
        "MB of text",
        "records",
        "keys",
        "MB stored",
        "published local",
        "remote",
        "local, unlimited",
        "remote",
        f"local, {rate}",
        "remote",
        title="Host killed: milliseconds until all its state is on another host's disk (medians)",
    )
    for row in rows(built, failures, rate):
        table.add_row(*row)
    return table


def steps(failures: Sequence[Failure]) -> Table:
    """Each group of host failures: when what was reached, and what went over the wire."""
    table = Table(
        "MB",
        "engine",
        "replica",
        "rate",
        "times",
        "noticed",
        "noticed → usable",
        "kill → usable",
        "kill → committed",
        "MB over the wire, in / out (most)",
        title="Host killed: seconds (medians)",
    )
    groups = dict.fromkeys(
        (f.megabytes, f.engine, f.arrangement, f.rate) for f in failures if f.kind == "host"
    )
    for megabytes, engine, arrangement, rate in groups:
        same = chosen(failures, megabytes, arrangement, rate, engine=engine)
        table.add_row(
            f"{megabytes}",
            engine,
            arrangement,
            rate or "unlimited",
            f"{len(same)}",
            seconds(middle(same, lambda f: f.detected_s)),
            seconds(middle(same, lambda f: f.fetch_s)),
            seconds(middle(same, _usable)),
            seconds(middle(same, lambda f: f.committed_s)),
            f"{_most(same, lambda f: f.wire_in)} / {_most(same, lambda f: f.wire_out)}",
        )
    return table


def others(failures: Sequence[Failure]) -> Table:
    """Executors and drivers that were killed."""
    table = Table(
        "killed",
        "MB",
        "times",
        "kill → committed",
        "steps of the last",
        title="Executor and driver killed: seconds (medians)",
    )
    for kind, megabytes in dict.fromkeys(
        (f.kind, f.megabytes) for f in failures if f.kind != "host"
    ):
        same = [f for f in failures if (f.kind, f.megabytes) == (kind, megabytes)]
        told = ", ".join(f"{name} {spent:.2f}" for name, spent in same[-1].steps.items())
        committed = seconds(middle(same, lambda f: f.committed_s))
        table.add_row(kind, f"{megabytes}", f"{len(same)}", committed, told)
    return table


def restores(found: Sequence[Restore]) -> Table:
    """Starts with empty disks."""
    table = Table(
        "MB",
        "rate",
        "keys touched",
        "first epoch processed",
        "committed",
        "all state on disk",
        title="Restore from storage: seconds from the start of the pipeline",
    )
    for r in found:
        cells = (r.epoch_s, r.committed_s, r.full_s)
        table.add_row(
            f"{r.megabytes}", r.rate or "unlimited", f"{r.touched_keys:,}", *map(seconds, cells)
        )
    return table


def bounds(found: Sequence[Bound]) -> Table:
    """What a first epoch after a restore could do at best."""
    table = Table(
        "MB",
        "cold keys",
        "keys' share of bytes",
        "small reads per second",
        "best first epoch / full restore",
        "reads per second for 0.5",
        title="What bounds the first epoch after a restore",
    )
    for b in found:
        needed = "—" if b.reads_needed is None else f"{b.reads_needed:,.0f}"
        table.add_row(
            f"{b.megabytes}",
            f"{b.cold_keys:,}",
            f"{b.key_share:.2f}",
            f"{b.reads_per_second:,.0f}",
            f"{b.least_ratio:.2f}",
            needed,
        )
    return table


def _usable(failure: Failure) -> float | None:
    return failure.usable_s


def _most(failures: Sequence[Failure], value: Callable[[Failure], int | None]) -> str:
    found = [x for x in map(value, failures) if x is not None]
    return f"{max(found) / 1e6:.2f}" if found else "—"


def milliseconds(value: float | None) -> str:
    """For a cell.

    >>> milliseconds(1.2344), milliseconds(None)
    ('1234', '—')
    """
    return "—" if value is None else f"{value * 1000:.0f}"


def seconds(value: float | None) -> str:
    """For a cell.

    >>> seconds(1.2344), seconds(None)
    ('1.23', '—')
    """
    return "—" if value is None else f"{value:.2f}"
