"""State variables that can't be used: not yet, because ``init`` still runs, or no longer."""

# ruff: noqa: N815 - the names are PySpark's

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql.streaming.stateful_processor import ListState, MapState, ValueState

from holdfast.spark.stateful.errors import StateError, invalid_handle_state
from holdfast.spark.stateful.variables import Kind, StateVariable

__all__ = ["early", "turn_gone"]


def _refused(operation: str, doing: str) -> Callable[..., Any]:
    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        del args, kwargs
        raise self._refusal(operation, doing)

    return refuse


def _unread(operation: str, doing: str) -> Callable[..., Any]:
    def no_items(self: Any) -> Iterator[Any]:
        return self._no_items(operation, doing)  # type: ignore[no-any-return]

    return no_items


class _RefusingValue(ValueState):
    exists = _refused("exists", "Error checking value state exists")
    get = _refused("get", "Error getting value state")
    update = _refused("update", "Error updating value state")
    clear = _refused("clear", "Error clearing value state")


class _RefusingList(ListState):
    exists = _refused("exists", "Error checking value state exists")
    get = _unread("get", "Error getting list state")
    put = _refused("put", "Error updating value state")
    appendValue = _refused("appendValue", "Error updating value state")
    appendList = _refused("appendList", "Error updating value state")
    clear = _refused("clear", "Error clearing value state")


class _RefusingMap(MapState):
    exists = _refused("exists", "Error checking map state exists")
    getValue = _refused("getValue", "Error getting value")
    containsKey = _refused("containsKey", "Error checking if map state contains key")
    updateValue = _refused("updateValue", "Error updating map state value")
    iterator = _unread("iterator", "Error getting map state")
    keys = _unread("keys", "Error getting map state")
    values = _unread("values", "Error getting map state")
    removeKey = _refused("removeKey", "Error removing key from map state")
    clear = _refused("clear", "Error clearing map state")


class _Early:
    """On the driver, where ``init`` only declares: there is no key yet."""

    _stateName: str

    def _refusal(self, operation: str, doing: str) -> StateError:
        return invalid_handle_state(doing, f"{self._stateName}.{operation}", "PRE_INIT")

    def _no_items(self, operation: str, doing: str) -> Iterator[Any]:
        raise self._refusal(operation, doing)


class _DeletedState:
    """After ``deleteIfExists``; reading all items finds none, as in PySpark."""

    _stateName: str
    _kind: str

    def _refusal(self, operation: str, doing: str) -> StateError:
        del operation
        return StateError(doing, f"{self._kind} state {self._stateName} is not initialized.")

    def _no_items(self, operation: str, doing: str) -> Iterator[Any]:
        del operation, doing
        return iter(())


class _EarlyValue(_Early, _RefusingValue): ...


class _EarlyList(_Early, _RefusingList): ...


class _EarlyMap(_Early, _RefusingMap): ...


class _GoneValue(_DeletedState, _RefusingValue):
    _kind = "Value"


class _GoneList(_DeletedState, _RefusingList):
    _kind = "List"


class _GoneMap(_DeletedState, _RefusingMap):
    _kind = "Map"


_EARLY: dict[Kind, type[Any]] = {"value": _EarlyValue, "list": _EarlyList, "map": _EarlyMap}
_GONE: dict[Kind, type[Any]] = {"value": _GoneValue, "list": _GoneList, "map": _GoneMap}


def early(variable: StateVariable) -> Any:
    """A variable that is declared and can't be used yet."""
    state: Any = object.__new__(_EARLY[variable.kind])
    state._stateName = variable.name  # noqa: SLF001 - the base class's constructor asks Spark
    return state


def turn_gone(state: Any, kind: Kind) -> None:
    """Make a variable, which the processor may hold, refuse all use."""
    state.__class__ = _GONE[kind]
