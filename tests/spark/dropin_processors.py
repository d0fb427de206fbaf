"""Processors written against PySpark alone: what the drop-in is compared with Spark's engine on.

Most come in both forms from one body, by :class:`Both`; the first two are written out as people
write them.
"""

# ruff: noqa: N803 - the names are PySpark's

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import IntegerType, StructField, StructType

EPOCH = datetime(2024, 1, 1, tzinfo=timezone.utc)
BASE_MS = int(EPOCH.timestamp() * 1000)


class ViolationsInRows(StatefulProcessor):
    """The example of PySpark's own documentation, for Rows."""

    def init(self, handle: Any) -> None:
        schema = StructType([StructField("value", IntegerType(), True)])
        self.violations = handle.getValueState("numViolations", schema)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        found, count = 0, 0
        before = self.violations.get()[0] if self.violations.exists() else 0
        for row in rows:
            if row.temperature is not None:
                count += 1
                if row.temperature > 100:
                    found += 1
        self.violations.update((before + found,))
        yield Row(id=key[0], count=count, violations=before + found)

    def close(self) -> None:
        pass


class ViolationsInFrames(StatefulProcessor):
    """The same for pandas."""

    def init(self, handle: Any) -> None:
        self.violations = handle.getValueState("numViolations", "value int")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
        found, count = 0, 0
        before = self.violations.get()[0] if self.violations.exists() else 0
        for frame in rows:
            count += int(frame.count().get("temperature"))
            found += int((frame["temperature"] > 100).sum())
        self.violations.update((before + found,))
        yield pd.DataFrame({"id": key, "count": [count], "violations": [before + found]})


class Both(StatefulProcessor):
    """One body for both forms: rows come as dicts, and dicts go out."""

    pandas = False

    def each(self, key: Any, rows: list[dict[str, Any]], times: Any) -> Iterator[dict[str, Any]]:
        raise NotImplementedError

    def fired(self, key: Any, ms: int, times: Any) -> Iterator[dict[str, Any]]:
        return iter(())

    def begun(self, key: Any, state: dict[str, Any]) -> None:
        raise NotImplementedError

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        given = [row for part in rows for row in self._dicts(part)]
        for out in self.each(key, given, timerValues):
            yield self._out(out)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        for out in self.fired(key, expiredTimerInfo.getExpiryTimeInMs(), timerValues):
            yield self._out(out)

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        for state in self._dicts(initialState):
            self.begun(key, state)

    def _dicts(self, part: Any) -> list[dict[str, Any]]:
        if not self.pandas:
            return [part.asDict()]
        records = part.to_dict("records")
        return [{n: None if _nothing(v) else v for n, v in record.items()} for record in records]

    def _out(self, out: dict[str, Any]) -> Any:
        return pd.DataFrame([out]) if self.pandas else Row(**out)


def _nothing(value: Any) -> bool:
    return value is None or (np.isscalar(value) and pd.isna(value)) or value is pd.NaT


class ThreeKinds(Both):
    """A value, a list and a map, written, read, cleared and removed from in turns."""

    output = "id string, seen string"

    def init(self, handle: Any) -> None:
        self.total = handle.getValueState("total", "n long, s double")
        self.items = handle.getListState("items", "v int, w string")
        self.counts = handle.getMapState("counts", "w string", "n long")

    def each(self, key: Any, rows: list[dict[str, Any]], times: Any) -> Iterator[dict[str, Any]]:
        n, s = self.total.get() or (0, 0.0)
        for row in rows:
            v = int(row["v"])
            n, s = n + 1, s + v / 4
            word = f"w{v % 3}"
            old = self.counts.getValue((word,))
            self.counts.updateValue((word,), ((old.n if old is not None else 0) + 1,))
            if v % 7 == 0:
                self.items.clear()
            elif v % 5 == 0:
                self.items.put([(v, word), (None, None)])
            else:
                self.items.appendValue((v, word))
            if v % 11 == 0:
                self.counts.removeKey((word,))
            if v % 13 == 0:
                self.counts.clear()
        if n % 4 == 0:
            self.items.appendList([(n, "four"), (n + 1, None)])
        if n % 6 == 0:
            self.total.clear()
        else:
            self.total.update((n, s))
        seen = (
            self.total.exists(),
            self.total.get(),
            self.items.exists(),
            list(self.items.get()),
            self.counts.exists(),
            sorted(self.counts.iterator()),
            sorted(self.counts.keys()),
            sorted(self.counts.values()),
            self.counts.containsKey(("w1",)),
            self.counts.getValue(("nowhere",)),
        )
        yield {"id": key[0], "seen": repr(seen)}


class Alarms(Both):
    """Event-time timers: listed, deleted, fired in order, set again while they fire."""

    output = "id string, what string"

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.fires = handle.getValueState("fires", "n int")

    def each(self, key: Any, rows: list[dict[str, Any]], times: Any) -> Iterator[dict[str, Any]]:
        for row in rows:
            for second in row["set"]:
                self.handle.registerTimer(BASE_MS + int(second) * 1000)
        first, second_list = self.handle.listTimers(), self.handle.listTimers()
        listed = sorted(t - BASE_MS for t in first)
        assert listed == sorted(t - BASE_MS for t in second_list)
        mark = times.getCurrentWatermarkInMs()
        what = f"rows {[r['v'] for r in rows]} at {mark - BASE_MS if mark else mark}: {listed}"
        yield {"id": key[0], "what": what}

    def fired(self, key: Any, ms: int, times: Any) -> Iterator[dict[str, Any]]:
        (n,) = self.fires.get() or (0,)
        self.fires.update((n + 1,))
        second = (ms - BASE_MS) // 1000
        listed = sorted((t - BASE_MS) // 1000 for t in self.handle.listTimers())
        if second == 3:
            self.handle.registerTimer(BASE_MS + 4_000)
            self.handle.registerTimer(BASE_MS + 40_000)
        if second == 5:
            self.handle.deleteTimer(BASE_MS + 6_000)
            self.handle.deleteTimer(BASE_MS + 99_000)
        if second == 7:
            self.handle.registerTimer(BASE_MS + 7_000)
        mark = times.getCurrentWatermarkInMs() - BASE_MS
        yield {"id": key[0], "what": f"fired {second} ({key.id}) at {mark}, nr {n}: {listed}"}


class Dawn(Both):
    """Event-time timers around 1970, which is where Spark's watermark begins."""

    output = "id string, what string"

    def init(self, handle: Any) -> None:
        self.handle = handle

    def each(self, key: Any, rows: list[dict[str, Any]], times: Any) -> Iterator[dict[str, Any]]:
        for row in rows:
            for ms in row["set"]:
                self.handle.registerTimer(int(ms))
        values = [int(row["v"]) for row in rows]
        yield {"id": key[0], "what": f"rows {values} at {times.getCurrentWatermarkInMs()}"}

    def fired(self, key: Any, ms: int, times: Any) -> Iterator[dict[str, Any]]:
        yield {"id": key[0], "what": f"fired {ms} at {times.getCurrentWatermarkInMs()}"}


class Chain(Both):
    """A timer that sets the next one, up to the key's end."""

    output = "id string, beat long"

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.left = handle.getValueState("left", "n int")

    def each(self, key: Any, rows: list[dict[str, Any]], times: Any) -> Iterator[dict[str, Any]]:
        self.left.update((4,))
        first = min(row["v"] for row in rows)
        self.handle.registerTimer(BASE_MS + (int(first) + 2) * 1000)
        return iter(())

    def fired(self, key: Any, ms: int, times: Any) -> Iterator[dict[str, Any]]:
        (left,) = self.left.get() or (0,)
        if left:
            self.left.update((left - 1,))
            self.handle.registerTimer(ms + 10_000)
        else:
            self.left.clear()
        yield {"id": key[0], "beat": ms - BASE_MS}


class Prompt(Both):
    """Processing-time timers: one that is due at once, one long past, one that never comes."""

    output = "id string, what string"

    def init(self, handle: Any) -> None:
        self.handle = handle

    def each(self, key: Any, rows: list[dict[str, Any]], times: Any) -> Iterator[dict[str, Any]]:
        now = times.getCurrentProcessingTimeInMs()
        for ms in (now, 5, 5, now + 10**12):
            self.handle.registerTimer(ms)
        self.handle.deleteTimer(7)
        what = f"{len(rows)} rows, {len(list(self.handle.listTimers()))}+ timers, "
        yield {"id": key[0], "what": what + f"watermark {times.getCurrentWatermarkInMs()}"}

    def fired(self, key: Any, ms: int, times: Any) -> Iterator[dict[str, Any]]:
        now = times.getCurrentProcessingTimeInMs()
        yield {"id": key[0], "what": f"fired {'past' if ms == 5 else now - ms}"}


class Fading(Both):
    """Time to live: of a millisecond, gone in the next batch, and of a month, still there."""

    output = "id string, seen string"
    MONTH = 30 * 24 * 3_600_000

    def init(self, handle: Any) -> None:
        self.short_value = handle.getValueState("short_value", "n int", 1)
        self.long_value = handle.getValueState("long_value", "n int", self.MONTH)
        self.no_ttl = handle.getValueState("no_ttl", "n int", 0)
        self.short_list = handle.getListState("short_list", "n int", 1)
        self.long_list = handle.getListState("long_list", "n int", self.MONTH)
        self.short_map = handle.getMapState("short_map", "k string", "n int", 1)
        self.long_map = handle.getMapState("long_map", "k string", "n int", self.MONTH)

    def each(self, key: Any, rows: list[dict[str, Any]], times: Any) -> Iterator[dict[str, Any]]:
        before = self._seen()
        for row in rows:
            v = int(row["v"])
            for value in (self.short_value, self.long_value, self.no_ttl):
                value.update((v,))
            self.short_list.appendValue((v,))
            self.long_list.appendList([(v,), (v + 1,)])
            self.short_map.updateValue((f"k{v % 2}",), (v,))
            self.long_map.updateValue((f"k{v % 3}",), (v,))
        yield {"id": key[0], "seen": f"{before} then {self._seen()}"}

    def _seen(self) -> str:
        values = [v.get() for v in (self.short_value, self.long_value, self.no_ttl)]
        lists = [list(x.get()) for x in (self.short_list, self.long_list)]
        maps = [sorted(m.iterator()) for m in (self.short_map, self.long_map)]
        exist = [x.exists() for x in (self.short_value, self.short_list, self.short_map)]
        return repr((values, lists, maps, exist))


class Seeded(Both):
    """Initial state, also for keys that get rows only later or never."""

    output = "id string, balance double, notes string"

    def init(self, handle: Any) -> None:
        self.balance = handle.getValueState("balance", "amount double")
        self.notes = handle.getListState("notes", "text string")

    def begun(self, key: Any, state: dict[str, Any]) -> None:
        (before,) = self.balance.get() or (0.0,)
        self.balance.update((before + state["amount"],))
        self.notes.appendValue((f"{key[0]} began with {state['note']}",))

    def each(self, key: Any, rows: list[dict[str, Any]], times: Any) -> Iterator[dict[str, Any]]:
        (before,) = self.balance.get() or (0.0,)
        after = before + sum(row["v"] for row in rows)
        self.balance.update((after,))
        notes = "; ".join(sorted(text for (text,) in self.notes.get()))
        yield {"id": key[0], "balance": after, "notes": notes}


class Purged(Both):
    """Deletes a variable it has declared, and one it never had."""

    output = "id string, seen string"

    def init(self, handle: Any) -> None:
        self.kept = handle.getValueState("kept", "n int")
        self.purged = handle.getListState("purged", "n int")
        handle.deleteIfExists("purged")
        handle.deleteIfExists("never_there")

    def each(self, key: Any, rows: list[dict[str, Any]], times: Any) -> Iterator[dict[str, Any]]:
        (n,) = self.kept.get() or (0,)
        self.kept.update((n + len(rows),))
        try:
            self.purged.put([(1,)])
            error = "none"
        except Exception as caught:
            error = f"{type(caught).__name__}: {caught}"
        yield {"id": key[0], "seen": f"{n} {list(self.purged.get())} {error}"}


class Heavy(Both):
    """Values of half a megabyte, in every kind of state."""

    output = "id string, sizes string"

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "text string, raw binary")
        self.items = handle.getListState("items", "text string")
        self.entries = handle.getMapState("entries", "n int", "text string")

    def each(self, key: Any, rows: list[dict[str, Any]], times: Any) -> Iterator[dict[str, Any]]:
        text, raw = self.value.get() or ("", b"")
        for row in rows:
            text = str(row["v"] % 10) * 500_000
            raw = bytes([int(row["v"]) % 256]) * 500_000
            self.items.appendValue((text[:250_000],))
            self.entries.updateValue((int(row["v"]) % 3,), (text,))
        self.value.update((text, raw))
        stored = self.value.get()
        sizes = (
            len(stored[0]),
            stored[0][-1],
            len(stored[1]),
            stored[1][-1],
            [len(item) for (item,) in self.items.get()],
            sorted((n, len(item), item[0]) for (n,), (item,) in self.entries.iterator()),
        )
        yield {"id": key[0], "sizes": repr(sizes)}


class Composite(Both):
    """Keys of several columns, null among them, as state and as map keys."""

    output = "key string, n long, others string"

    def init(self, handle: Any) -> None:
        self.n = handle.getValueState("n", "n long")
        self.others = handle.getMapState("others", "a string, b int", "n long, empty string")

    def each(self, key: Any, rows: list[dict[str, Any]], times: Any) -> Iterator[dict[str, Any]]:
        (n,) = self.n.get() or (0,)
        self.n.update((n + len(rows),))
        for row in rows:
            v = int(row["v"])
            name = (row["a"], None if v % 2 else v % 4)
            found = self.others.getValue(name)
            self.others.updateValue(name, (v + (found[0] if found else 0), None))
        others = sorted(self.others.iterator(), key=repr)
        yield {"key": repr(tuple(key)), "n": n + len(rows), "others": repr(others)}


class Placed(Both):
    """Keys that are structs: as they come with rows, and as they come back with timers."""

    output = "key string, what string, n long"

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.n = handle.getValueState("n", "n long")
        self.seen = handle.getListState("seen", "v long")

    def each(self, key: Any, rows: list[dict[str, Any]], times: Any) -> Iterator[dict[str, Any]]:
        (n,) = self.n.get() or (0,)
        self.n.update((n + len(rows),))
        for row in rows:
            self.seen.appendValue((int(row["v"]),))
        self.handle.registerTimer(BASE_MS + 5000 * (n + 1))
        seen = [v for (v,) in self.seen.get()]
        yield {"key": repr(tuple(key)), "what": repr(seen), "n": n + len(rows)}

    def fired(self, key: Any, ms: int, times: Any) -> Iterator[dict[str, Any]]:
        (n,) = self.n.get() or (0,)
        yield {"key": repr(tuple(key)), "what": f"fired {ms - BASE_MS}", "n": n}


class Point(NamedTuple):
    x: int
    y: float


Pair: Any = namedtuple("Pair", "x y")


class Foreign(Both):
    """NumPy scalars, Rows, named tuples and pandas timestamps as values."""

    output = "id string, seen string"

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState(
            "value",
            "i int, l long, f float, d double, b boolean, s string, when timestamp, plain "
            "timestamp_ntz, day date, money decimal(12,2), point struct<x:int,y:double>, many "
            "array<int>, by_name map<string,double>",
        )
        self.points = handle.getListState("points", "x int, y double")
        self.by_point = handle.getMapState("by_point", "x int, y double", "when timestamp")

    def each(self, key: Any, rows: list[dict[str, Any]], times: Any) -> Iterator[dict[str, Any]]:
        v = int(rows[-1]["v"])
        when = pd.Timestamp("2024-02-03 04:05:06.789012") + pd.Timedelta(seconds=v)
        named = Pair(np.int64(v), np.float32(0.5))
        self.value.update(
            (
                np.int32(v),
                np.int64(v) * 10**10,
                np.float32(v) / 4,
                np.float64(v) / 3,
                np.bool_(v % 2),
                np.str_(f"s{v}"),
                when,
                when.to_pydatetime(),
                when.date(),
                Decimal(v) / 8,
                Row(x=np.int16(v), y=0.25),
                [np.int8(1), None, 3],
                {"a": np.float64(1.5), "b": None},
            )
        )
        self.points.appendList([Point(v, 0.5), named, Row(x=v, y=1.0), [v, 2.0], (None, None)])
        self.by_point.updateValue(Point(v % 2, 1.5), (when,))
        seen = (self.value.get(), list(self.points.get()), sorted(self.by_point.iterator()))
        yield {"id": key[0], "seen": repr(seen)}


class Mirror(StatefulProcessor):
    """Says what it was given, to the last type."""

    output = "said string"
    pandas = False

    def init(self, handle: Any) -> None:
        self.last = handle.getValueState("last", "t timestamp")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
        for row in rows:
            if self.pandas:
                said = repr((key, row.dtypes.to_dict(), row.to_dict("list"), list(row.index)))
                yield pd.DataFrame({"said": [said]})
            else:
                yield Row(said=repr((key, row, row.asDict())))


class Narrow(Both):
    """The first of two versions of a program."""

    output = "id string, seen string"

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "a int, b string, gone double")
        self.items = handle.getListState("items", "n int")
        self.entries = handle.getMapState("entries", "k string", "n int")

    def each(self, key: Any, rows: list[dict[str, Any]], times: Any) -> Iterator[dict[str, Any]]:
        v = int(rows[-1]["v"])
        self.value.update((v, f"b{v}", v / 2))
        self.items.appendValue((v,))
        self.entries.updateValue(("k",), (v,))
        yield {"id": key[0], "seen": repr(self.value.get())}


class Wide(Both):
    """The second: fields added, removed, in another order and wider; a variable more."""

    output = "id string, seen string"

    def init(self, handle: Any) -> None:
        self.value = handle.getValueState("value", "b string, a long, more int")
        self.items = handle.getListState("items", "n long, note string")
        self.entries = handle.getMapState("entries", "k string", "n long")
        self.fresh = handle.getValueState("fresh", "n int")

    def each(self, key: Any, rows: list[dict[str, Any]], times: Any) -> Iterator[dict[str, Any]]:
        v = int(rows[-1]["v"])
        before = (
            self.value.get(),
            list(self.items.get()),
            list(self.entries.iterator()),
            self.fresh.get(),
        )
        self.value.update((f"b{v}", v + 2**40, v))
        self.items.appendValue((v + 2**40, "new"))
        self.entries.updateValue(("k",), (v + 2**40,))
        self.fresh.update((v,))
        after = (self.value.get(), list(self.items.get()), list(self.entries.iterator()))
        yield {"id": key[0], "seen": repr((before, after))}
