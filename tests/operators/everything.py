"""A process that uses everything: state of every kind, timers of both clocks, side outputs, metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from holdfast.operators.process.declare import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)
from holdfast.operators.process.keyed import KeyedProcess

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def at(ms: int) -> datetime:
    """A time that many ms after 1970."""
    return EPOCH + timedelta(milliseconds=ms)


def to_ms(when: datetime) -> int:
    return round((when - EPOCH) / timedelta(milliseconds=1))


class Everything(KeyedProcess):
    """Does what each row says, to state of every kind; timers do something too."""

    output = "user string, part int, step string, seen string"
    side_outputs = {"notes": "user string, n long"}  # noqa: RUF012 - as a user writes it

    total = ValueState("long", default=0)
    name = ValueState("string")
    pair = ValueState("struct<a:long,b:array<long>>")
    brief = ValueState("long", ttl=0.02)
    seen = ValueState("long", ttl=0.03, ttl_clock="event", ttl_on="read")
    added = ReducingState("long", "sum")
    least = ReducingState("long", "min", ttl=0.025)
    joined = ReducingState("string", lambda a, b: a + b, ttl=0.04, ttl_clock="event", ttl_on="read")
    mean = AggregatingState(
        "struct<s:long,n:long>",
        create=lambda: {"s": 0, "n": 0},
        add=lambda a, x: {"s": a["s"] + x, "n": a["n"] + 1},
        result=lambda a: (a["s"], a["n"]),
    )
    log = ListState("long")
    recent = ListState("struct<n:long>", ttl=0.03, ttl_clock="event")
    passing = ListState("long", ttl=0.015)
    items = MapState("long", "string")
    fresh = MapState("string", "long", ttl=0.02, ttl_on="read")
    dated = MapState("struct<x:long,y:string>", "array<long>", ttl=0.03, ttl_clock="event")

    def process(self, key: Any, rows: Sequence[Any], ctx: Any) -> Iterator[Any]:
        for row in rows:
            seen = ACTS[row.op % len(ACTS)](self, row.a, row.b, ctx)
            yield {"user": key.user, "part": key.part, "step": f"op {row.op}", "seen": repr(seen)}

    def on_timer(self, key: Any, when: datetime, ctx: Any) -> Iterator[Any]:
        ms = to_ms(when)
        act = TIMER_ACTS[ms % len(TIMER_ACTS)]
        seen = act(self, ms % 11, ms % 5, ctx)
        yield key.user, key.part, f"{ctx.timer_clock} timer {ms}", repr(seen)


Act = Callable[[Any, int, int, Any], Any]


def _remove(p: Any, a: int, b: int, ctx: Any) -> Any:
    del b, ctx
    if a in p.items:
        del p.items[a]
        return "removed"
    return p.items.pop(a, "nothing")


def _raises_key_error(p: Any, a: int) -> Any:
    try:
        return p.items[a]
    except KeyError as error:
        return repr(error)


def _set(state: Any, value: Any) -> None:
    state.value = value


def _note(ctx: Any, user: str, n: int) -> None:
    ctx.side_output("notes", {"user": user, "n": n})
    ctx.metrics.add("notes")
    ctx.metrics.add("sum", n)


STATE_ACTS: list[Act] = [
    lambda p, a, b, c: _set(p.total, p.total.value + a),
    lambda p, a, b, c: (p.total.value, p.total.exists()),
    lambda p, a, b, c: p.total.clear(),
    lambda p, a, b, c: _set(p.name, f"n{a}" if b else None),
    lambda p, a, b, c: (p.name.value, p.name.exists()),
    lambda p, a, b, c: _set(p.pair, (a, [b, None])),
    lambda p, a, b, c: p.pair.value,
    lambda p, a, b, c: _set(p.brief, a),
    lambda p, a, b, c: (p.brief.value, p.brief.exists()),
    lambda p, a, b, c: p.brief.clear(),
    lambda p, a, b, c: _set(p.seen, a),
    lambda p, a, b, c: p.seen.value,
    lambda p, a, b, c: p.added.add(a),
    lambda p, a, b, c: (p.added.value, p.added.clear() if b == 0 else None),
    lambda p, a, b, c: p.least.add(a),
    lambda p, a, b, c: p.least.value,
    lambda p, a, b, c: p.joined.add(f"{a}."),
    lambda p, a, b, c: p.joined.value,
    lambda p, a, b, c: p.mean.add(a),
    lambda p, a, b, c: (p.mean.value, p.mean.clear() if b == 0 else None),
    lambda p, a, b, c: p.log.append(a),
    lambda p, a, b, c: p.log.extend([a, b]),
    lambda p, a, b, c: (list(p.log), len(p.log), bool(p.log)),
    lambda p, a, b, c: p.log.set([a] * b),
    lambda p, a, b, c: p.log.clear(),
    lambda p, a, b, c: p.recent.append((a,)),
    lambda p, a, b, c: list(p.recent),
    lambda p, a, b, c: (p.recent.clear(), p.recent.append({"n": b})),
    lambda p, a, b, c: p.passing.append(b),
    lambda p, a, b, c: (list(p.passing), p.passing.clear() if a == 0 else None),
    lambda p, a, b, c: p.items.__setitem__(a, f"i{b}"),
    lambda p, a, b, c: p.items.update({a: None, b: "u"}),
    lambda p, a, b, c: (p.items.get(a), p.items.get(b, "none"), _raises_key_error(p, a)),
    _remove,
    lambda p, a, b, c: p.items.pop(a, None),
    lambda p, a, b, c: (len(p.items), bool(p.items), a in p.items, sorted(p.items)),
    lambda p, a, b, c: sorted(p.items.items()),
    lambda p, a, b, c: p.items.clear(),
    lambda p, a, b, c: (p.items.clear(), p.items.__setitem__(b, "after")),
    lambda p, a, b, c: p.fresh.__setitem__(f"f{a}", b),
    lambda p, a, b, c: (p.fresh.get(f"f{a}"), f"f{b}" in p.fresh),
    lambda p, a, b, c: (sorted(p.fresh.items()), sorted(p.fresh.values())),
    lambda p, a, b, c: p.fresh.clear() if a % 3 == 0 else p.fresh.pop(f"f{a}", "-"),
    lambda p, a, b, c: p.dated.__setitem__((a, f"y{b}"), [a, b]),
    lambda p, a, b, c: (p.dated.get((a, f"y{b}")), sorted(p.dated.items())),
]
TIMER_ACTS: list[Act] = [
    *STATE_ACTS,
    lambda p, a, b, c: c.timers.set(at(40 * a + b)),
    lambda p, a, b, c: c.timers.set(at(1000 + 40 * a + b), clock="processing"),
    lambda p, a, b, c: c.timers.set(c.processing_time + timedelta(milliseconds=a), "processing"),
    lambda p, a, b, c: [c.timers.delete(t) for t in c.timers.list()[:b]],
    lambda p, a, b, c: [c.timers.delete(t, "processing") for t in c.timers.list("processing")[:b]],
    lambda p, a, b, c: (c.timers.list(), c.timers.list("processing")),
    lambda p, a, b, c: (c.epoch, c.processing_time, c.watermark),
    lambda p, a, b, c: _note(c, f"note {a}", b),
]
SET_PROCESSING_TIMER = TIMER_ACTS[len(STATE_ACTS) + 1]
# Timers are what most goes wrong with: give them more of the rows.
ACTS: list[Act] = [*STATE_ACTS, *TIMER_ACTS[len(STATE_ACTS) :] * 3]
