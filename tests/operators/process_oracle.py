"""A process that uses everything, and the plain Python loop with dicts that it must equal.

The oracle runs the same user code. Its states are dicts of what was written and when it expires, and
know nothing of columns, chunks, runs or hashes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from holdfast.checkpoint.entry import EpochRecord
from holdfast.operators.process.declare import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    State,
    ValueState,
    declared_states,
)
from holdfast.operators.process.keyed import KeyedProcess
from holdfast.operators.process.rows import row_class

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
Key = tuple[Any, ...]


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
    ctx.output("notes", {"user": user, "n": n})
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


class _Written(NamedTuple):
    value: Any
    expires: int | None


@dataclass
class Here:
    """Whose turn it is, and when."""

    key: Key = ()
    processing_ms: int = 0
    watermark_ms: int | None = None

    def now(self, clock: str) -> int | None:
        return self.processing_ms if clock == "processing" else self.watermark_ms


class _Model:
    def __init__(self, here: Here, state: State) -> None:
        self.here, self.ttl = here, state.ttl

    def written(self, value: Any) -> _Written:
        now = self.here.now(self.ttl.clock) if self.ttl else None
        return _Written(value, None if now is None or self.ttl is None else now + self.ttl.ms)

    def live(self, entry: _Written) -> bool:
        now = self.here.now(self.ttl.clock) if self.ttl else None
        return now is None or entry.expires is None or entry.expires > now

    def refreshed(self) -> bool:
        return self.ttl is not None and self.ttl.on_read


class _Value(_Model):
    def __init__(self, here: Here, state: Any) -> None:
        super().__init__(here, state)
        self.entries: dict[Key, _Written] = {}
        self.default = getattr(state, "default", None)
        self.fields = _fields(state.type)

    def get(self) -> Any:
        entry = self.entries.get(self.here.key)
        if entry is None or not self.live(entry):
            return None
        if self.refreshed():
            self.entries[self.here.key] = self.written(entry.value)
        return entry.value

    def set(self, value: Any) -> None:
        self.entries.pop(self.here.key, None)
        if value is not None:
            if self.fields and isinstance(value, tuple):
                value = dict(zip(self.fields, value, strict=True))
            self.entries[self.here.key] = self.written(value)

    @property
    def value(self) -> Any:
        found = self.get()
        return self.default if found is None else found

    @value.setter
    def value(self, value: Any) -> None:
        self.set(value)

    def exists(self) -> bool:
        entry = self.entries.get(self.here.key)
        return entry is not None and self.live(entry)

    def clear(self) -> None:
        self.set(None)


class _Reduced(_Value):
    def __init__(self, here: Here, state: ReducingState) -> None:
        super().__init__(here, state)
        self.merge = state.merge

    def add(self, value: Any) -> None:
        before = self.get()
        self.set(value if before is None else self.merge(before, value))


class _Aggregated(_Value):
    def __init__(self, here: Here, state: AggregatingState) -> None:
        super().__init__(here, state)
        self.state = state

    @property
    def value(self) -> Any:
        found = self.get()
        return None if found is None else self.state.result_of(found)

    @value.setter
    def value(self, value: Any) -> None:
        raise AttributeError("an aggregating state is added to")

    def add(self, value: Any) -> None:
        before = self.get()
        self.set(self.state.add_to(self.state.create() if before is None else before, value))


class _Listed(_Model):
    def __init__(self, here: Here, state: ListState) -> None:
        super().__init__(here, state)
        self.entries: dict[Key, list[_Written]] = {}
        self.fields = _fields(state.type)

    def append(self, value: Any) -> None:
        if self.fields and isinstance(value, tuple):
            value = dict(zip(self.fields, value, strict=True))
        self.entries.setdefault(self.here.key, []).append(self.written(value))

    def extend(self, values: Iterable[Any]) -> None:
        for value in values:
            self.append(value)

    def set(self, values: Iterable[Any]) -> None:
        self.clear()
        self.extend(values)

    def clear(self) -> None:
        self.entries.pop(self.here.key, None)

    def mine(self) -> list[Any]:
        return [e.value for e in self.entries.get(self.here.key, ()) if self.live(e)]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.mine())

    def __len__(self) -> int:
        return len(self.mine())


class _Mapped(_Model):
    def __init__(self, here: Here, state: MapState) -> None:
        super().__init__(here, state)
        self.entries: dict[Key, dict[Any, _Written]] = {}

    def mine(self) -> dict[Any, Any]:
        entries = self.entries.get(self.here.key, {})
        return {name: e.value for name, e in entries.items() if self.live(e)}

    def __setitem__(self, name: Any, value: Any) -> None:
        self.entries.setdefault(self.here.key, {})[name] = self.written(value)

    def get(self, name: Any, default: Any = None) -> Any:
        if name not in self.mine():
            return default
        found = self.mine()[name]
        if self.refreshed():
            self[name] = found
        return found

    def __contains__(self, name: Any) -> bool:
        missing = object()
        return self.get(name, missing) is not missing

    def __getitem__(self, name: Any) -> Any:
        if name not in self:
            raise KeyError(name)
        return self.get(name)

    def __delitem__(self, name: Any) -> None:
        del self.entries[self.here.key][name]

    def pop(self, name: Any, default: Any = None) -> Any:
        found = self.mine().get(name, default)
        self.entries.get(self.here.key, {}).pop(name, None)
        return found

    def update(self, entries: dict[Any, Any]) -> None:
        for name, value in entries.items():
            self[name] = value

    def __len__(self) -> int:
        return len(self.mine())

    def __iter__(self) -> Iterator[Any]:
        return iter(self.mine())

    def items(self) -> Iterable[tuple[Any, Any]]:
        return self.mine().items()

    def values(self) -> Iterable[Any]:
        return self.mine().values()

    def keys(self) -> Iterable[Any]:
        return self.mine().keys()

    def clear(self) -> None:
        self.entries.pop(self.here.key, None)


def _fields(kind: Any) -> list[str]:
    import pyarrow as pa

    return [f.name for f in kind] if pa.types.is_struct(kind) else []


def model_of(here: Here, state: State) -> Any:
    """The dict that stands for a declared state."""
    kinds: dict[type, Any] = {
        ValueState: _Value,
        ReducingState: _Reduced,
        AggregatingState: _Aggregated,
        ListState: _Listed,
        MapState: _Mapped,
    }
    return kinds[type(state)](here, state)


@dataclass
class _Timers:
    here: Here
    pending: dict[Key, set[tuple[int, str]]]
    firing: bool = False
    postponed: dict[tuple[Key, int, str], int] = field(default_factory=dict)
    """Timers set while timers fire, and due already: the clock they were set at."""

    def set(self, when: Any, clock: str = "event") -> None:
        ms = to_ms(when)
        mine = self.pending.setdefault(self.here.key, set())
        now = self.here.now(clock)
        if (ms, clock) not in mine:
            mine.add((ms, clock))
            if self.firing and now is not None and ms <= now:
                self.postponed[self.here.key, ms, clock] = now

    def delete(self, when: Any, clock: str = "event") -> None:
        self.remove(self.here.key, to_ms(when), clock)

    def remove(self, key: Key, ms: int, clock: str) -> bool:
        mine = self.pending.get(key, set())
        self.postponed.pop((key, ms, clock), None)
        if (ms, clock) not in mine:
            return False
        mine.discard((ms, clock))
        return True

    def list(self, clock: str = "event") -> list[datetime]:
        return [at(ms) for ms, c in sorted(self.pending.get(self.here.key, ())) if c == clock]

    def due(self) -> Sequence[tuple[int, Key, str]]:
        found = []
        for key, timers in self.pending.items():
            for ms, clock in timers:
                now = self.here.now(clock)
                moved = self.postponed.get((key, ms, clock), -1) != now
                if now is not None and ms <= now and moved:
                    found.append((ms, key, clock))
        return sorted(found, key=lambda t: (t[0], _rank(t[1]), t[2]))


def _rank(key: Key) -> tuple[Any, ...]:
    return tuple((value is None, value) for value in key)


@dataclass
class _Metrics:
    counts: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, amount: float = 1) -> None:
        self.counts[name] = self.counts.get(name, 0) + amount


class _Context:
    def __init__(self, record: EpochRecord, timers: _Timers) -> None:
        self.epoch = record.epoch
        self.processing_time = at(record.processing_time_ms)
        self.watermark = None if record.watermark_ms is None else at(record.watermark_ms)
        self.timers, self.metrics = timers, _Metrics()
        self.timer_clock: str | None = None
        self.sides: dict[str, list[Any]] = {}

    def output(self, name: str, row: Any) -> None:
        self.sides.setdefault(name, []).append(row)


@dataclass
class Expected:
    """What an epoch must come to."""

    output: list[dict[str, Any]]
    late: list[tuple[Any, ...]]
    sides: dict[str, list[Any]]
    metrics: dict[str, float]


class Oracle:
    """A loop over rows, with dicts."""

    def __init__(
        self, process: KeyedProcess, columns: Sequence[str], keys: Sequence[str], lateness_ms: int
    ) -> None:
        self.here = Here()
        self.process: Any = process
        self.columns, self.keys = tuple(columns), tuple(keys)
        self.lateness_ms = lateness_ms
        for name, state in declared_states(type(process)).items():
            setattr(process, name, model_of(self.here, state))
        self.timers = _Timers(self.here, {})
        self.names = [part.split()[0] for part in str(type(process).output).split(", ")]

    def epoch(self, rows: Sequence[tuple[Any, ...]], record: EpochRecord) -> Expected:
        """All rows of each key, then all timers that are due."""
        here, make = self.here, row_class(self.columns)._make
        here.processing_ms, here.watermark_ms = record.processing_time_ms, record.watermark_ms
        ctx = _Context(record, self.timers)
        groups: dict[Key, list[Any]] = {}
        late: list[tuple[Any, ...]] = []
        for values in rows:
            row = make(values)
            mark = record.watermark_ms
            if mark is not None and row.ts is not None and row.ts <= at(mark - self.lateness_ms):
                late.append(values)
            else:
                groups.setdefault(tuple(row[name] for name in self.keys), []).append(row)
        output: list[Any] = []
        for key, mine in groups.items():
            here.key = key
            output += self.process.process(row_class(self.keys)._make(key), mine, ctx) or ()
        due = self.timers.due()
        self.timers.firing = True
        for ms, key, clock in due:
            here.key, ctx.timer_clock = key, clock
            if self.timers.remove(key, ms, clock):
                named = row_class(self.keys)._make(key)
                output += self.process.on_timer(named, at(ms), ctx) or ()
        self.timers.firing = False
        rows_out = [
            row if isinstance(row, dict) else dict(zip(self.names, row, strict=True))
            for row in output
        ]
        return Expected(rows_out, late, ctx.sides, ctx.metrics.counts)


def by_key(rows: Iterable[dict[str, Any]], keys: Sequence[str]) -> dict[Key, list[dict[str, Any]]]:
    """Rows of each key in their order; keys among each other have none."""
    groups: dict[Key, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in keys), []).append(row)
    return groups
