"""What a processor may not do: PySpark's errors, by class, text and condition."""

# ruff: noqa: N803 - the names are PySpark's

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark import errors as spark_errors
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructField, StructType

from holdfast.errors import HoldfastError, ProcessingError
from holdfast.spark.stateful.handle import parse_time_mode
from holdfast.testing import ProcessorTester

HANDLE_STATE = "STATEFUL_PROCESSOR_CANNOT_PERFORM_OPERATION_WITH_INVALID_HANDLE_STATE"
TIME_MODE = "STATEFUL_PROCESSOR_CANNOT_PERFORM_OPERATION_WITH_INVALID_TIME_MODE"
TTL_MODE = "STATEFUL_PROCESSOR_INCORRECT_TIME_MODE_TO_ASSIGN_TTL"
EMPTY = "ILLEGAL_STATE_STORE_VALUE.EMPTY_LIST_VALUE"
NAME = "STATE_STORE_CANNOT_USE_COLUMN_FAMILY_WITH_INVALID_NAME"

Action = Callable[[Any], Any]


class Probe(StatefulProcessor):
    """Does one thing, in one of its methods."""

    def __init__(self, where: str = "data", act: Action = lambda probe: None) -> None:
        self.where, self.act = where, act

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.value = handle.getValueState("v", "n int")
        self.items = handle.getListState("l", StructType([StructField("n", LongType())]))
        self.entries = handle.getMapState("m", "k string", "n int")
        if self.where == "init":
            self.act(self)

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        yield Row(said=repr(self.act(self) if self.where == "data" else None))

    def close(self) -> None:
        if self.where == "close":
            self.act(self)


def run(probe: Probe, mode: Any = "None") -> list[Any]:
    tester = ProcessorTester(
        probe, columns="id string", keys="id", output="said string", time_mode=mode
    )
    return [row["said"] for row in tester.process([("a",)])]


DECLARED: list[tuple[str, Action, str, str | None]] = [
    ("None", lambda p: p.handle.getValueState("v", "n int"), "Value state v already exists", None),
    ("None", lambda p: p.handle.getMapState("m", "n int", "n int"), "Map state m already", None),
    (
        "None",
        lambda p: p.handle.getListState("v", "n int"),
        "State variable with name v has already been defined",
        "STATEFUL_PROCESSOR_DUPLICATE_STATE_VARIABLE_DEFINED",
    ),
    (
        "None",
        lambda p: (p.handle.deleteIfExists("v"), p.handle.getValueState("v", "n int")),
        "State variable with name v has already been defined",
        "STATEFUL_PROCESSOR_DUPLICATE_STATE_VARIABLE_DEFINED",
    ),
    ("None", lambda p: p.handle.getValueState("t", "n int", 5), "timeMode=NoTime", TTL_MODE),
    ("EventTime", lambda p: p.handle.getListState("t", "n int", 5), "=EventTime", TTL_MODE),
    (
        "ProcessingTime",
        lambda p: p.handle.getMapState("t", "k int", "n int", -5),
        "TTL duration must be greater than zero",
        "STATEFUL_PROCESSOR_TTL_DURATION_MUST_BE_POSITIVE",
    ),
    ("None", lambda p: p.handle.getValueState("", "n int"), "invalid name=.", NAME),
    ("None", lambda p: p.handle.getValueState(" a", "n int"), "invalid name= a", NAME),
    ("None", lambda p: p.handle.getValueState("default", "n int"), "name=default", NAME),
    (
        "None",
        lambda p: p.handle.getValueState("$a", "n int"),
        "unsupported starting character",
        "STATE_STORE_CANNOT_CREATE_COLUMN_FAMILY_WITH_RESERVED_CHARS",
    ),
    ("None", lambda p: p.handle.getValueState("t", "double"), "Error parsing string schema", None),
    ("None", lambda p: p.handle.getValueState("t", "n strange"), "no type 'strange'", None),
    ("ProcessingTime", lambda p: p.handle.registerTimer(5), "state=PRE_INIT", HANDLE_STATE),
    ("None", lambda p: p.value.get(), "operation=v.get", HANDLE_STATE),
    ("None", lambda p: list(p.items.get()), "operation=l.get", HANDLE_STATE),
    ("None", lambda p: p.entries.updateValue(("a",), (1,)), "m.updateValue", HANDLE_STATE),
]


@pytest.mark.parametrize(("mode", "act", "text", "condition"), DECLARED)
def test_init_is_checked_before_anything_runs(
    mode: str, act: Action, text: str, condition: str | None
) -> None:
    with pytest.raises(spark_errors.PySparkRuntimeError) as caught:
        run(Probe("init", act), mode)
    assert text in str(caught.value)
    assert caught.value.getCondition() == condition
    if condition is not None:
        assert f"[{condition}]" in str(caught.value)
        assert caught.value.getSqlState() == "42802"


def test_close_is_checked_too() -> None:
    with pytest.raises(spark_errors.PySparkRuntimeError, match=r"operation=v\.exists"):
        run(Probe("close", lambda p: p.value.exists()))


USED: list[tuple[str, Action, str, str | None]] = [
    ("None", lambda p: p.handle.getValueState("w", "n int"), "state=INITIALIZED", HANDLE_STATE),
    ("None", lambda p: p.handle.deleteIfExists("v"), "=delete_if_exists", HANDLE_STATE),
    ("None", lambda p: p.handle.registerTimer(5), "Error register timer: [", TIME_MODE),
    ("None", lambda p: p.handle.deleteTimer(5), "Error deleting timer: [", TIME_MODE),
    ("None", lambda p: list(p.handle.listTimers()), "operation=list_timers", TIME_MODE),
    ("None", lambda p: p.items.put([]), "Error updating value state: [", EMPTY),
    ("None", lambda p: p.items.appendList([]), "for StateName l", EMPTY),
    ("None", lambda p: p.value.update((1, 2)), "2 values", "STRUCT_ARRAY_LENGTH_MISMATCH"),
    ("None", lambda p: p.entries.updateValue(("a",), ("x",)), "Error updating map state", None),
]


@pytest.mark.parametrize(("mode", "act", "text", "condition"), USED)
def test_what_rows_may_not_do(mode: str, act: Action, text: str, condition: str | None) -> None:
    with pytest.raises(ProcessingError, match=r"Probe.handleInputRows raised .*id='a'") as caught:
        run(Probe(act=act), mode)
    cause = caught.value.__cause__
    assert isinstance(cause, spark_errors.PySparkRuntimeError)
    assert text in str(cause)
    assert cause.getCondition() == condition
    assert str(cause) in str(caught.value)


class Strict(StatefulProcessor):
    """Fields that are declared never to be null."""

    def __init__(self, act: Action) -> None:
        self.act = act

    def init(self, handle: Any) -> None:
        fields = [StructField("n", LongType(), nullable=False), StructField("m", LongType())]
        self.value = handle.getValueState("v", StructType(fields))
        self.items = handle.getListState("l", "n long NOT NULL")
        self.entries = handle.getMapState("m", "k string not null", "n long")
        inner = StructType([StructField("x", LongType(), nullable=False)])
        self.nested = handle.getValueState(
            "d",
            StructType(
                [
                    StructField("one", inner),
                    StructField("many", ArrayType(inner, containsNull=False)),
                    StructField("named", MapType(StringType(), inner)),
                ]
            ),
        )

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        self.act(self)
        yield Row(said="done")


def test_fields_that_are_never_null_are_held_to_it() -> None:
    def fine(strict: Any) -> None:
        strict.value.update((1, None))
        strict.items.put([(1,)])
        strict.entries.updateValue(("a",), (None,))
        strict.nested.update((None, [(1,), (2,)], {"a": (1,), "b": None}))

    assert run(Strict(fine)) == ["done"]  # type: ignore[arg-type]
    broken: list[tuple[Action, str]] = [
        (lambda s: s.value.update((None, 1)), "field 'n' of state 'v'"),
        (lambda s: s.items.appendValue((None,)), "field 'n' of state 'l'"),
        (lambda s: s.items.put([(1,), (None,)]), "field 'n' of state 'l'"),
        (lambda s: s.entries.updateValue((None,), (1,)), "field 'k' of state 'm'"),
        (lambda s: s.nested.update(((None,), [], {})), "field 'one.x' of state 'd'"),
        (lambda s: s.nested.update((None, [None], {})), "field 'many.element' of state 'd'"),
        (
            lambda s: s.nested.update((None, [(1,), (None,)], {})),
            "field 'many.element.x' of state 'd'",
        ),
        (
            lambda s: s.nested.update((None, [], {"a": (None,)})),
            "field 'named.value.x' of state 'd'",
        ),
    ]
    for act, where in broken:
        with pytest.raises(ProcessingError, match=f"{where} is declared never to be null"):
            run(Strict(act))  # type: ignore[arg-type]


NOTHING: list[Action] = [
    lambda p: p.value.update(None),
    lambda p: p.items.put(None),
    lambda p: p.items.appendValue(None),
    lambda p: p.items.put([None]),
    lambda p: p.entries.getValue(None),
    lambda p: p.entries.updateValue(("a",), None),
]


@pytest.mark.parametrize("act", NOTHING)
def test_none_is_pythons_own_error(act: Action) -> None:
    with pytest.raises(ProcessingError, match=r"TypeError.*'NoneType' object is not iterable"):
        run(Probe(act=act))


def test_a_deleted_variable_refuses_all_but_reading_nothing() -> None:
    def act(probe: Probe) -> Any:
        if probe.where == "init":
            for name in ("v", "l", "m", "never_there"):
                probe.handle.deleteIfExists(name)
        return None

    class Deleted(Probe):
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
            said: list[Any] = [
                list(self.items.get()),
                list(self.entries.iterator()),
                list(self.entries.keys()),
            ]
            for use in (
                self.value.get,
                self.value.exists,
                lambda: self.items.put([(1,)]),
                lambda: self.entries.containsKey(("a",)),
            ):
                try:
                    use()
                except spark_errors.PySparkRuntimeError as error:
                    said.append(str(error))
            yield Row(said="|".join(map(str, said)))

    (said,) = run(Deleted("init", act))
    assert said.split("|") == [
        "[]",
        "[]",
        "[]",
        "Error getting value state: Value state v is not initialized.",
        "Error checking value state exists: Value state v is not initialized.",
        "Error updating value state: List state l is not initialized.",
        "Error checking if map state contains key: Map state m is not initialized.",
    ]


def test_a_time_mode_that_does_not_exist() -> None:
    assert parse_time_mode("pRoCessingTIME") == "ProcessingTime"
    with pytest.raises(spark_errors.IllegalArgumentException) as caught:
        parse_time_mode("Bogus")
    assert caught.value.getCondition() == "STATEFUL_PROCESSOR_UNKNOWN_TIME_MODE"


def test_a_processor_that_raises_is_shown_with_its_own_traceback() -> None:
    def divide(probe: Probe) -> Any:
        return 1 / 0  # the line that is shown

    with pytest.raises(ProcessingError) as caught:
        run(Probe(act=divide))
    assert "ZeroDivisionError" in str(caught.value)
    assert "the line that is shown" in str(caught.value)
    assert "id='a'" in str(caught.value)
    assert "epoch 0" in str(caught.value)


OUTPUTS: list[tuple[Any, str]] = [
    (Row("x"), "is no Row with names"),
    (("x",), r"Wrong put out \('x',\) \(tuple\) for key \(id='a'\) in epoch 0, which is no Row"),
    ({"said": "x"}, "which is no Row"),
    (Row(said=5), r"field 'said' should be string, but is 5 \(int\)"),
    (Row(said=5), r"Wrong put out a row for key \(id='a'\) in epoch 0 that doesn't fit its output"),
]


@pytest.mark.parametrize(("row", "problem"), OUTPUTS)
def test_rows_that_do_not_fit_the_output(row: Any, problem: str) -> None:
    class Wrong(Probe):
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            return [row]

    with pytest.raises(HoldfastError, match=problem):
        run(Wrong())


def test_output_is_taken_by_name() -> None:
    class Sparse(Probe):
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            return [Row(other=1), Row(other=1, said="x"), Row("other", "said")(1, "y")]

    assert run(Sparse()) == [None, "x", "y"]


def test_what_is_not_iterable_is_pythons_own_error() -> None:
    class Nothing(Probe):
        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            return None

    with pytest.raises(ProcessingError, match="'NoneType' object is not iterable"):
        run(Nothing())
