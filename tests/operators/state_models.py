"""Declared states as plain dicts of what was written and when it expires.

They know nothing of columns, chunks, runs or hashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from holdfast.operators.process.declare import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    State,
    ValueState,
)

Key = tuple[Any, ...]


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
