"""Which runs to merge, so that there are never many and no row is rewritten often.

Runs are merged when ``fanout`` of about the same size have gathered: sizes are put into tiers by
powers of ``fanout``. With n rows there are at most ``fanout - 1`` runs in each of log n tiers, and a
row is rewritten at most about once per tier.

Segments of one range need not overlap: when P has changed, a wide range holds narrow runs side by
side. Such segments, and all whose epochs interlock, form one *layer*, and layers are what is
counted and merged: only whole layers are neighbours in epoch order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from holdfast.state.run import Segment

__all__ = ["free_stretches", "newest_to_merge", "plan_merge"]


def free_stretches(
    segments: Sequence[Segment], free: Callable[[Segment], bool]
) -> tuple[list[slice], bool]:
    """Where whole layers of free segments lie side by side; and whether some layer is free in part.

    Only such a stretch can become one run: of a layer that is free in part (half of it was stored, the
    other half was not) the rest would share epochs with the result.

    >>> from holdfast.state.hashing import FULL_RANGE
    >>> from holdfast.state.run import Run
    >>> def segment(epoch, part=FULL_RANGE):
    ...     return Segment(Run(f"1-{epoch}", "t", part, epoch, epoch, 10), part)
    >>> halves = FULL_RANGE.split(2)
    >>> stack = [segment(3), segment(2), segment(1, halves[0]), segment(1, halves[1])]
    >>> free_stretches(stack, lambda s: s.range != halves[0])
    ([slice(0, 2, None)], True)
    """
    stretches: list[slice] = []
    mixed = False
    for layer in _layers(segments):
        among = [free(segment) for segment in segments[layer.start : layer.stop]]
        mixed |= any(among) and not all(among)
        if not all(among):
            continue
        if stretches and stretches[-1].stop == layer.start:
            stretches[-1] = slice(stretches[-1].start, layer.stop)
        else:
            stretches.append(slice(layer.start, layer.stop))
    return stretches, mixed


def newest_to_merge(stack: Sequence[Segment], free: Callable[[Segment], bool]) -> Sequence[Segment]:
    """The newest segment and those below that it is to be merged with now; none, if not now."""
    stretches, _ = free_stretches(stack, free)
    if not stretches or stretches[0].start:
        return ()
    chosen = plan_merge(stack[stretches[0]])
    return () if chosen is None or chosen.start else stack[chosen]


def plan_merge(segments: Sequence[Segment], fanout: int = 4) -> slice | None:
    """Which neighbours among these segments (newest first) to merge now, if any.

    >>> from holdfast.state.hashing import FULL_RANGE
    >>> from holdfast.state.run import Run
    >>> def segment(epoch, rows):
    ...     return Segment(Run(f"1-{epoch}", "t", FULL_RANGE, epoch, epoch, rows), FULL_RANGE)
    >>> plan_merge([segment(9, 100), segment(8, 120), segment(7, 90), segment(6, 20_000)])
    >>> plan_merge([segment(9, 100), segment(8, 120), segment(7, 90), segment(6, 110)])
    slice(0, 4, None)
    """
    layers = _layers(segments)
    end = 0
    while end < len(layers):
        start, tier = end, _tier(layers[end].heap, fanout)
        while end < len(layers) and _tier(layers[end].heap, fanout) == tier:
            end += 1
        if sum(layer.depth for layer in layers[start:end]) >= fanout:
            end = _and_what_follows(layers, start, end, fanout)
            return slice(layers[start].start, layers[end - 1].stop)
    return None


@dataclass(frozen=True, slots=True)
class _Layer:
    start: int
    stop: int
    """Its segments' places in the list."""
    rows: int
    depth: int
    """How many of its segments a single hash can lie in."""
    heap: int
    """The rows of the largest layer from the newest to this: it never falls towards older ones, so
    a small layer behind a large one is merged along with it and is not left over for ever."""


def _layers(segments: Sequence[Segment]) -> list[_Layer]:
    layers: list[_Layer] = []
    start, heap = 0, 0
    while start < len(segments):
        stop, oldest = start + 1, segments[start].run.first_epoch
        while stop < len(segments) and segments[stop].run.last_epoch >= oldest:
            oldest = min(oldest, segments[stop].run.first_epoch)
            stop += 1
        rows = sum(segment.rows for segment in segments[start:stop])
        heap = max(heap, rows)
        layers.append(_Layer(start, stop, rows, _depth(segments[start:stop]), heap))
        start = stop
    return layers


def _depth(segments: Sequence[Segment]) -> int:
    edges = [(s.range.first, 1) for s in segments] + [(s.range.last + 1, -1) for s in segments]
    depth = deepest = 0
    for _, step in sorted(edges):
        depth += step
        deepest = max(deepest, depth)
    return deepest


def _tier(rows: int, fanout: int) -> int:
    tier = 0
    while rows >= fanout:
        rows //= fanout
        tier += 1
    return tier


def _and_what_follows(layers: Sequence[_Layer], start: int, end: int, fanout: int) -> int:
    """Take in older tiers that the result would fill, instead of rewriting it right away."""
    while end < len(layers):
        merged = sum(layer.rows for layer in layers[start:end])
        tier = _tier(layers[end].heap, fanout)
        if _tier(merged, fanout) < tier:
            return end
        stop = end
        while stop < len(layers) and _tier(layers[stop].heap, fanout) == tier:
            stop += 1
        if 1 + sum(layer.depth for layer in layers[end:stop]) < fanout:
            return end
        end = stop
    return end
