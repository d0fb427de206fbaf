"""The state variables of transformWithState as the tables of a process.

Each variable is read by its name, from Spark's state of all keys, and goes to the state of the same
name: values to a column of the values' table, lists and maps to tables of their own, timers to the
values' table and to the index by time. A variable with one field fits a state of that field's type
as well as one of a struct.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as Spark's own documentation writes it
from pyspark.sql import types as T  # noqa: N812

from holdfast.checkpoint.entry import EpochRecord
from holdfast.choices import TimeKind
from holdfast.errors import InputError
from holdfast.operators.process.batch import BatchOperator
from holdfast.operators.process.declare import ListState, MapState, State
from holdfast.operators.process.operator import ProcessOperator
from holdfast.operators.process.tables import ProcessTables
from holdfast.spark.adopt.keys import hash_and_keys, unpacked
from holdfast.spark.adopt.kinds import check_kind
from holdfast.spark.adopt.old_query import OldQuery, StatefulOperator
from holdfast.spark.adopt.tables import AdoptedTable
from holdfast.spark.adopt.variables import OldVariable, timers_of, variables_of
from holdfast.spark.types import spark_type
from holdfast.state.schema import TableSchema
from holdfast.types import parse_type, type_words

__all__ = ["process_tables"]

_SPARK_NAMES = ("transformWithStateExec", "transformWithStateInPySparkExec")
_KINDS = {"value": "ValueState", "list": "ListState", "map": "MapState"}
_ELEMENT = "_holdfast_element"


def process_tables(
    operator: ProcessOperator | BatchOperator,
    old: OldQuery,
    chosen: StatefulOperator,
    record: EpochRecord,
) -> list[AdoptedTable]:
    """The rows that the operator's tables begin with; ``InputError`` if a variable doesn't fit."""
    check_kind(chosen, _SPARK_NAMES, "a process")
    return _Reader.of(operator, old, chosen, record).tables()


@dataclass(frozen=True, slots=True)
class _Reader:
    states: Mapping[str, State]
    schemas: ProcessTables
    old: OldQuery
    chosen: StatefulOperator
    record: EpochRecord
    variables: tuple[OldVariable, ...]
    timers: TimeKind | None

    @classmethod
    def of(
        cls,
        operator: ProcessOperator | BatchOperator,
        old: OldQuery,
        chosen: StatefulOperator,
        record: EpochRecord,
    ) -> _Reader:
        if isinstance(operator, BatchOperator):
            states = tuple(operator._states.values())  # noqa: SLF001 - Holdfast's own
            schemas = ProcessTables(operator.tables[0], {}, {}, {})
        else:
            states, schemas = operator.program.states, operator.process_tables
        by_name = {state.name: state for state in states}
        variables = tuple(v for v in variables_of(chosen) if v.name not in operator.deleted_states)
        return cls(by_name, schemas, old, chosen, record, variables, timers_of(chosen))

    def tables(self) -> list[AdoptedTable]:
        sparse: list[DataFrame] = []
        found: list[AdoptedTable] = []
        for variable in self.variables:
            state = self._state_of(variable)
            if isinstance(state, MapState):
                found.append(AdoptedTable(self.schemas.maps[state.name], self._map(state)))
            elif isinstance(state, ListState):
                found.append(AdoptedTable(self.schemas.lists[state.name], self._list(state)))
            else:
                sparse.append(self._value(state))
        if self.timers is not None:
            found += self._timers(self.timers, sparse)
        if sparse:
            rows = sparse[0]
            for more in sparse[1:]:
                rows = rows.unionAll(more)
            found.insert(0, AdoptedTable(self.schemas.values, rows, sparse=True))
        return found

    def _state_of(self, variable: OldVariable) -> State:
        # A variable with the name of a key column is kept under another.
        state = self.states.get(variable.name, self.states.get(f"state.{variable.name}"))
        if state is None:
            raise InputError(
                f"the old query has a {variable.kind} {variable.name!r}, which the program "
                "doesn't declare",
                hint=f"declare it; the program has: {', '.join(self.states) or 'no state'}",
            )
        ours = _KINDS.get(state.kind, "ValueState")
        if ours != variable.kind:
            raise InputError(
                f"{variable.name!r} is a {variable.kind} in the old query and a "
                f"{type(state).__name__} in the program",
                hint="declare it as it was",
            )
        clock = state.ttl.clock if state.ttl else None
        if variable.has_ttl != (state.ttl is not None) or clock == "event":
            has = "lives for a time" if variable.has_ttl else "lives for ever"
            raise InputError(
                f"{variable.name!r} {has} in the old query, and in the program it is "
                f"{state.describe()}",
                hint="declare it with a ttl of processing time, or none, as it was",
            )
        return state

    def _read(self, state: State, **options: object) -> DataFrame:
        name = state.name.removeprefix("state.") if state.name not in self._names() else state.name
        return self.old.state(self.chosen, stateVarName=name, **options)

    def _names(self) -> set[str]:
        return {variable.name for variable in self.variables}

    def _value(self, state: State) -> DataFrame:
        frame = self._read(state)
        value, expires = _parts(F.col("value"), frame.schema["value"].dataType, state)
        columns = {state.name: value, f"{state.name}.expires": expires}
        return self._sparse(frame, columns)

    def _sparse(self, frame: DataFrame, columns: Mapping[str, Column | None]) -> DataFrame:
        """Rows of the values' table in which all other columns are null."""
        schema = self.schemas.values
        held = frame.select(
            "key", *(c.alias(f"_{i}") for i, c in enumerate(columns.values()) if c is not None)
        )
        places = {n: f"_{i}" for i, (n, c) in enumerate(columns.items()) if c is not None}
        values = [
            F.col(places[c.name]) if c.name in places else F.lit(None).cast(spark_type(c.type))
            for c in schema.values
        ]
        return _keyed(held, schema, values)

    def _map(self, state: MapState) -> DataFrame:
        frame = self._read(state)
        key = _bare(
            F.col("user_map_key"), frame.schema["user_map_key"].dataType, state, state.key_type
        )
        value, expires = _parts(
            F.col("user_map_value"), frame.schema["user_map_value"].dataType, state
        )
        return _keyed(frame, self.schemas.maps[state.name], _some(key, value, expires))

    def _list(self, state: ListState) -> DataFrame:
        frame = self._read(state, flattenCollectionTypes="false")
        kind = frame.schema["list_value"].dataType
        assert isinstance(kind, T.ArrayType)
        # The items of later epochs have greater numbers: an epoch's begin at its own times 2^24.
        frame = frame.select("key", F.posexplode("list_value").alias("_place", _ELEMENT))
        place = F.lit(self.record.epoch).cast("bigint") * F.lit(1 << 24) + F.col("_place")
        value, expires = _parts(F.col(_ELEMENT), kind.elementType, state)
        return _keyed(frame, self.schemas.lists[state.name], _some(place, value, expires))

    def _timers(self, kind: TimeKind, sparse: list[DataFrame]) -> list[AdoptedTable]:
        frame = self.old.state(self.chosen, readRegisteredTimers="true")
        time = F.col("expiration_timestamp_ms")
        if kind not in self.schemas.due:
            if frame.isEmpty():
                return []
            raise InputError(
                f"the old query has timers of {kind} time, for which the program has no code",
                hint="define on_timer, or let the old query's timers fire before it is moved",
            )
        collected = frame.groupBy("key").agg(F.array_sort(F.collect_list(time)).alias("_times"))
        sparse.append(self._sparse(collected, {f"timers.{kind}": F.col("_times")}))
        now = self.record.processing_time_ms if kind == "processing" else self.record.watermark_ms
        # What is due already is looked at as soon as time moves on.
        hint = time if now is None else F.greatest(time, F.lit(now + 1))
        schema = self.schemas.due[kind]
        return [AdoptedTable(schema, _keyed(frame, schema, [hint]))]


def _keyed(frame: DataFrame, schema: TableSchema, rest: list[Column]) -> DataFrame:
    """Hash and keys of the state key, and other columns."""
    state_keys = schema.keys[: schema.prefix or len(schema.keys)]
    others = [c.alias(f"_rest{i}") for i, c in enumerate(rest)]
    held = frame.select("key", *others)
    unpacked_frame, (keys,) = unpacked(held, "key", keep=[f"_rest{i}" for i in range(len(rest))])
    hashed = hash_and_keys(state_keys, keys)
    return unpacked_frame.select(*hashed, *(F.col(f"_rest{i}") for i in range(len(rest))))


def _some(*columns: Column | None) -> list[Column]:
    return [column for column in columns if column is not None]


def _parts(column: Column, kind: T.DataType, state: State) -> tuple[Column, Column | None]:
    """The value and, if it lives for a time, when it expires."""
    wanted: pa.DataType = state.type  # type: ignore[attr-defined]
    if state.ttl is None:
        return _bare(column, kind, state, wanted), None
    assert isinstance(kind, T.StructType)
    inner = kind["value"].dataType
    return _bare(column["value"], inner, state, wanted), column["ttlExpirationMs"]


def _bare(column: Column, kind: T.DataType, state: State, wanted: pa.DataType) -> Column:
    """A struct as the program wants it: whole, or its only field."""
    if parse_type(kind) == wanted:
        return column
    if isinstance(kind, T.StructType) and len(kind) == 1 and parse_type(kind[0].dataType) == wanted:
        return column[kind[0].name]
    raise InputError(
        f"state {state.name!r} is of {type_words(parse_type(kind))} in the old query and of "
        f"{type_words(wanted)} in the program",
        hint="declare it with the type that it had",
    )
