"""The handle that ``init`` gets: on the driver, where it collects what is declared, and in tasks."""

# ruff: noqa: N802, N803 - the names are PySpark's

from __future__ import annotations

import logging
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

from holdfast.errors import InputError
from holdfast.operators.process.cells import Cells, TimerCell
from holdfast.spark.stateful.errors import (
    StateError,
    duplicate_name,
    invalid_handle_state,
    invalid_name,
    invalid_time_mode,
    ttl_not_positive,
    ttl_time_mode,
    unknown_time_mode,
)
from holdfast.spark.stateful.refusing import early, turn_gone
from holdfast.spark.stateful.states import bind
from holdfast.spark.stateful.variables import Kind, StateVariable
from holdfast.types import parse_schema, required_fields

__all__ = ["DriverHandle", "Phase", "TaskHandle", "TimeMode", "parse_time_mode"]

logger = logging.getLogger("holdfast.stateful")

TimeMode = Literal["NoTime", "ProcessingTime", "EventTime"]
Phase = Literal["PRE_INIT", "CREATED", "INITIALIZED", "DATA_PROCESSED", "TIMER_PROCESSED", "CLOSED"]
_TIMED: tuple[Phase, ...] = ("INITIALIZED", "DATA_PROCESSED")
_MODES: dict[str, TimeMode] = {
    "none": "NoTime",
    "processingtime": "ProcessingTime",
    "eventtime": "EventTime",
}
_RESERVED = ("timers.", "state.")


def parse_time_mode(mode: str) -> TimeMode:
    """The time mode, however it is spelled.

    >>> parse_time_mode("eventtime")
    'EventTime'
    """
    if str(mode).lower() not in _MODES:
        raise unknown_time_mode(mode)
    return _MODES[str(mode).lower()]


class _Handle(StatefulProcessorHandle):
    """What both handles check."""

    _declares_in: Phase

    def __init__(self, mode: TimeMode, phase: Phase) -> None:
        self.mode, self.phase = mode, phase
        self.variables: dict[str, StateVariable] = {}
        self.deleted: set[str] = set()

    def getValueState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> Any:
        return self._declare("value", stateName, schema, None, ttlDurationMs)

    def getListState(self, stateName: str, schema: Any, ttlDurationMs: int | None = None) -> Any:
        return self._declare("list", stateName, schema, None, ttlDurationMs)

    def getMapState(
        self,
        stateName: str,
        userKeySchema: Any,
        valueSchema: Any,
        ttlDurationMs: int | None = None,
    ) -> Any:
        return self._declare("map", stateName, valueSchema, userKeySchema, ttlDurationMs)

    def registerTimer(self, expiryTimestampMs: int) -> None:
        self._timers("Error register timer", "register_timer")
        ms = operator.index(expiryTimestampMs)
        if not self._timer_cell().set(ms):
            logger.warning("key %r has a timer at %d ms already", self._key(), ms)

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        self._timers("Error deleting timer", "delete_timer")
        ms = operator.index(expiryTimestampMs)
        if not self._timer_cell().delete(ms):
            logger.warning("key %r has no timer at %d ms to delete", self._key(), ms)

    def listTimers(self) -> Iterator[int]:
        self._timers("Error listing timers", "list_timers")
        return iter(self._timer_cell().list())

    def deleteIfExists(self, stateName: str) -> None:
        if self.phase != self._declares_in:
            raise invalid_handle_state("Error deleting state", "delete_if_exists", self.phase)
        self.deleted.add(stateName)
        variable = self.variables.get(stateName)
        if variable is not None:
            self._forget(variable)

    def _declare(
        self, kind: Kind, name: str, schema: Any, key_schema: Any, ttl_ms: int | None
    ) -> Any:
        doing = f"Error initializing {kind} state"
        if self.phase != self._declares_in:
            raise invalid_handle_state(doing, f"get_{kind}_state", self.phase)
        self._check_name(doing, kind, name)
        # To PySpark a time to live of 0 is none.
        if ttl_ms:
            self._check_ttl(doing, name, ttl_ms)
        fields = _schema(schema, name)
        keys = None if kind != "map" else _schema(key_schema, name)
        required = required_fields(schema)
        key_required = () if kind != "map" else required_fields(key_schema)
        variable = StateVariable(name, kind, fields, keys, ttl_ms or None, required, key_required)
        self.variables[name] = variable
        return self._bind(variable)

    def _check_name(self, doing: str, kind: Kind, name: str) -> None:
        known = self.variables.get(name)
        if known is not None and known.kind == kind and name not in self.deleted:
            raise StateError(doing, f"{kind.capitalize()} state {name} already exists")
        if known is not None:
            raise duplicate_name(doing, name)
        if not name or name != name.strip() or name == "default" or name.startswith("$"):
            raise invalid_name(doing, name)
        if name.startswith(_RESERVED) or name.endswith(".expires"):
            raise StateError(doing, f"Holdfast keeps names like {name!r} for itself")

    def _check_ttl(self, doing: str, name: str, ttl_ms: int) -> None:
        if self.mode != "ProcessingTime":
            raise ttl_time_mode(doing, name, self.mode)
        if ttl_ms < 0:
            raise ttl_not_positive(doing, name)

    def _timers(self, doing: str, operation: str) -> None:
        if self.mode == "NoTime":
            raise invalid_time_mode(doing, operation)
        if self.phase not in _TIMED:
            raise invalid_handle_state(doing, operation, self.phase)

    def _bind(self, variable: StateVariable) -> Any:
        raise NotImplementedError

    def _forget(self, variable: StateVariable) -> None:
        raise NotImplementedError

    def _timer_cell(self) -> TimerCell:
        raise NotImplementedError

    def _key(self) -> Any:
        raise NotImplementedError


class DriverHandle(_Handle):
    """Collects what ``init`` declares, before any task runs."""

    _declares_in = "PRE_INIT"

    def __init__(self, mode: TimeMode) -> None:
        super().__init__(mode, "PRE_INIT")

    def _bind(self, variable: StateVariable) -> Any:
        return early(variable)

    def _forget(self, variable: StateVariable) -> None:
        pass


class TaskHandle(_Handle):
    """Gives out variables of the key in hand."""

    _declares_in = "CREATED"

    def __init__(
        self,
        mode: TimeMode,
        declared: Mapping[str, StateVariable],
        held_as: Mapping[str, str],
        cells: Cells,
    ) -> None:
        super().__init__(mode, "CREATED")
        self._declared, self._held_as, self._cells = declared, held_as, cells
        self._bound: dict[str, Any] = {}
        self._timer: TimerCell | None = next(iter(cells.timers.values()), None)
        self.keys: Sequence[Any] = ()
        """Those of the chunk in hand."""

    def _bind(self, variable: StateVariable) -> Any:
        declared = self._declared.get(variable.name)
        if declared != variable:
            was = "not at all" if declared is None else declared.words()
            raise StateError(
                f"Error initializing {variable.kind} state",
                f"init declares {variable.name} as {variable.words()} in a task, but on the driver "
                f"declared it {was}",
            )
        if variable.name in self._held_as:
            self._bound[variable.name] = bind(variable, self._held_as[variable.name], self._cells)
        else:
            # The driver has seen that init deletes it.
            self._bound[variable.name] = early(variable)
        return self._bound[variable.name]

    def _forget(self, variable: StateVariable) -> None:
        turn_gone(self._bound[variable.name], variable.kind)

    def _timer_cell(self) -> TimerCell:
        assert self._timer is not None
        return self._timer

    def _key(self) -> Any:
        return tuple(self.keys[self._cells.cursor.i])


def _schema(given: Any, name: str) -> pa.Schema:
    try:
        return parse_schema(given)
    except InputError as error:
        raise StateError("Error parsing string schema", f"state {name!r}: {error}") from None
