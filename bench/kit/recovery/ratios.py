"""The ratios of the recovery benchmark, from what was written down."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bench.kit.recovery.records import Failure, Restore, middle
from bench.kit.recovery.tables import chosen
from bench.kit.report import Bar, ratio_of

__all__ = ["BARS", "ratios"]

LARGE_MB = 200
BARS = {
    "remote_over_local": Bar(
        4, meaning="noticed to usable without a local replica over with one, limited rate"
    ),
    "remote_bytes_when_local": Bar(
        1_000_000, at_least=False, meaning="over the recovering host's cable, with a local replica"
    ),
    "executor_growth": Bar(
        1.3, at_least=False, meaning="executor killed: kill to committed, large state over small"
    ),
    "spark_over_holdfast": Bar(
        5, meaning="kill to committed without a local replica, Spark's own query over Holdfast"
    ),
    "first_epoch_over_full_restore": Bar(
        0.5, at_least=False, meaning="an epoch on 1 % of the keys over a full restore"
    ),
}


def ratios(
    failures: Sequence[Failure], restored: Sequence[Restore], rate: str
) -> dict[str, float | None]:
    """Of each what was measured; None for what was not."""
    sizes = sorted({f.megabytes for f in failures if f.kind == "host" and f.engine == "holdfast"})
    large = [size for size in sizes if size >= LARGE_MB]
    wire = [
        f.wire_in + f.wire_out
        for size in large
        for f in chosen(failures, size, "local", rate)
        if f.wire_in is not None and f.wire_out is not None
    ]
    return {
        "remote_over_local": _least(
            ratio_of(
                middle(chosen(failures, size, "remote", rate), lambda f: f.fetch_s),
                middle(chosen(failures, size, "local", rate), lambda f: f.fetch_s),
            )
            for size in large
        ),
        "remote_bytes_when_local": float(max(wire)) if wire else None,
        "executor_growth": _executor_growth(failures),
        "spark_over_holdfast": _beside_spark(failures, "remote", rate),
        "spark_over_holdfast_local": _beside_spark(failures, "local", rate),
        "first_epoch_over_full_restore": _first_epoch(restored),
    }


def _beside_spark(failures: Sequence[Failure], arrangement: str, rate: str) -> float | None:
    """How much longer Spark's own query takes: without a local replica both need the network."""
    return _least(
        ratio_of(
            _committed(failures, size, arrangement, rate, "spark"),
            _committed(failures, size, arrangement, rate, "holdfast"),
        )
        for size in sorted({f.megabytes for f in failures if f.engine == "spark"})
    )


def _least(found: Iterable[float | None]) -> float | None:
    """The worst of those that were measured."""
    known = [x for x in found if x is not None]
    return min(known, default=None)


def _committed(
    failures: Sequence[Failure], megabytes: int, arrangement: str, rate: str, engine: str
) -> float | None:
    same = chosen(failures, megabytes, arrangement, rate, engine=engine)
    return middle(same, lambda f: f.committed_s)


def _executor_growth(failures: Sequence[Failure]) -> float | None:
    killed = [f for f in failures if f.kind == "executor"]
    if not killed:
        return None
    least, most = min(f.megabytes for f in killed), max(f.megabytes for f in killed)
    if least == most:
        return None
    return ratio_of(
        middle((f for f in killed if f.megabytes == most), lambda f: f.committed_s),
        middle((f for f in killed if f.megabytes == least), lambda f: f.committed_s),
    )


def _first_epoch(restored: Sequence[Restore]) -> float | None:
    """The epoch that touches many keys, over the time of a full restore that nothing disturbs."""
    if len(restored) < 2:
        return None
    quiet, busy = (f(restored, key=lambda r: r.touched_keys) for f in (min, max))
    return ratio_of(busy.epoch_s, quiet.full_s)
