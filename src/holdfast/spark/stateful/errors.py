"""PySpark's errors, with its texts and conditions.

PySpark raises ``PySparkRuntimeError`` with the JVM's message in it; code that catches it, or looks
for the condition in the text, finds the same here. The classes have PySpark's names, because that is
what people look for in a log, and unlike PySpark's they also know their condition.
"""

# ruff: noqa: N802 - the names are PySpark's

from __future__ import annotations

from pyspark import errors as spark_errors

__all__ = [
    "AnalysisException",
    "IllegalArgumentException",
    "PySparkRuntimeError",
    "StateError",
    "duplicate_name",
    "empty_list",
    "event_time_without_watermark",
    "invalid_handle_state",
    "invalid_name",
    "invalid_time_mode",
    "old_event_time",
    "schema_not_nullable",
    "ttl_not_positive",
    "ttl_time_mode",
    "unknown_output_mode",
    "unknown_time_mode",
    "unresolved_column",
    "wrong_width",
]


class _Conditional:
    """An exception that was given its condition, not looked up in PySpark's own list."""

    _condition: str | None = None
    _state: str | None = None

    def getCondition(self) -> str | None:
        """The error condition, such as ``STATEFUL_PROCESSOR_TTL_DURATION_MUST_BE_POSITIVE``."""
        return self._condition

    def getErrorClass(self) -> str | None:
        """The same under its older name."""
        return self._condition

    def getSqlState(self) -> str | None:
        """The SQLSTATE that goes with the condition."""
        return self._state

    def __str__(self) -> str:
        # PySpark would put a condition that it finds in front of the text.
        return self._message

    _message: str


class PySparkRuntimeError(_Conditional, spark_errors.PySparkRuntimeError):
    """Something that a processor may not do with its state or its timers.

    >>> error = StateError("Error register timer", "time is up", "SOME_CONDITION", "42802")
    >>> str(error)
    'Error register timer: [SOME_CONDITION] time is up SQLSTATE: 42802'
    """

    def __init__(
        self, doing: str, text: str, condition: str | None = None, state: str | None = None
    ) -> None:
        super().__init__(f"{doing}: {_words(text, condition, state)}")
        self._condition, self._state = condition, state


StateError = PySparkRuntimeError


class IllegalArgumentException(_Conditional, spark_errors.IllegalArgumentException):
    """An argument that means nothing."""

    def __init__(self, text: str, condition: str, state: str) -> None:
        super().__init__(_words(text, condition, state))
        self._condition, self._state = condition, state


class AnalysisException(_Conditional, spark_errors.AnalysisException):
    """A program that can't be planned."""

    def __init__(self, text: str, condition: str, state: str) -> None:
        super().__init__(_words(text, condition, state))
        self._condition, self._state = condition, state


def _words(text: str, condition: str | None, state: str | None) -> str:
    return f"[{condition}] {text} SQLSTATE: {state}" if condition else text


def invalid_handle_state(doing: str, operation: str, phase: str) -> StateError:
    """What is done in the wrong phase of a processor's life."""
    return StateError(
        doing,
        f"Failed to perform stateful processor operation={operation} with invalid handle "
        f"state={phase}.",
        "STATEFUL_PROCESSOR_CANNOT_PERFORM_OPERATION_WITH_INVALID_HANDLE_STATE",
        "42802",
    )


def invalid_time_mode(doing: str, operation: str) -> StateError:
    """Timers without time."""
    return StateError(
        doing,
        f"Failed to perform stateful processor operation={operation} with invalid timeMode=NoTime",
        "STATEFUL_PROCESSOR_CANNOT_PERFORM_OPERATION_WITH_INVALID_TIME_MODE",
        "42802",
    )


def duplicate_name(doing: str, name: str) -> StateError:
    """Two variables of one name."""
    return StateError(
        doing,
        f"State variable with name {name} has already been defined in the StatefulProcessor.",
        "STATEFUL_PROCESSOR_DUPLICATE_STATE_VARIABLE_DEFINED",
        "42802",
    )


def invalid_name(doing: str, name: str) -> StateError:
    """Names that Spark refuses."""
    if name.startswith("$"):
        return StateError(
            doing,
            f"Failed to create column family with unsupported starting character and name={name}.",
            "STATE_STORE_CANNOT_CREATE_COLUMN_FAMILY_WITH_RESERVED_CHARS",
            "42802",
        )
    return StateError(
        doing,
        f"Failed to perform column family operation=create_col_family with invalid name={name}. "
        "Column family name cannot be empty or include leading/trailing spaces or use the reserved "
        "keyword=default",
        "STATE_STORE_CANNOT_USE_COLUMN_FAMILY_WITH_INVALID_NAME",
        "42802",
    )


def ttl_time_mode(doing: str, name: str, mode: str) -> StateError:
    """Time to live goes by processing time only."""
    return StateError(
        doing,
        f"Cannot use TTL for state={name} in timeMode={mode}, use TimeMode.ProcessingTime() instead.",
        "STATEFUL_PROCESSOR_INCORRECT_TIME_MODE_TO_ASSIGN_TTL",
        "42802",
    )


def ttl_not_positive(doing: str, name: str) -> StateError:
    """A negative time to live."""
    return StateError(
        doing,
        f"TTL duration must be greater than zero for State store operation=update on state={name}.",
        "STATEFUL_PROCESSOR_TTL_DURATION_MUST_BE_POSITIVE",
        "42802",
    )


def empty_list(doing: str, name: str) -> StateError:
    """A list can't be set to nothing, or nothing appended."""
    return StateError(
        doing,
        "Illegal value provided to the State Store Cannot write empty list values to State Store "
        f"for StateName {name}.",
        "ILLEGAL_STATE_STORE_VALUE.EMPTY_LIST_VALUE",
        "42601",
    )


def wrong_width(doing: str, needed: int, given: int) -> StateError:
    """A value with too few or too many fields."""
    return StateError(
        doing,
        "Input row doesn't have expected number of values required by the schema. "
        f"{needed} fields are required while {given} values are provided.",
        "STRUCT_ARRAY_LENGTH_MISMATCH",
        "2201E",
    )


def schema_not_nullable(name: str, fields: str) -> StateError:
    """A field that can't be null, where states may gain fields by a later schema."""
    return StateError(
        "Error initializing state",
        "If Avro encoding is enabled, all the fields in the schema for column family "
        f"{name} must be nullable when using the TransformWithState operator. Please make the schema "
        f"nullable. Current schema: {fields}",
        "TRANSFORM_WITH_STATE_SCHEMA_MUST_BE_NULLABLE",
        "XXKST",
    )


def unknown_time_mode(mode: str) -> IllegalArgumentException:
    """A time mode that doesn't exist."""
    return IllegalArgumentException(
        f"Unknown time mode {mode}. Accepted timeMode modes are 'none', 'processingTime', "
        "'eventTime'",
        "STATEFUL_PROCESSOR_UNKNOWN_TIME_MODE",
        "42802",
    )


def unknown_output_mode(mode: str) -> Exception:
    """An output mode that doesn't exist, or that only aggregations have."""
    if mode.lower() == "complete":
        return AnalysisException(
            "Invalid streaming output mode: complete. This output mode is not supported for no "
            "streaming aggregations on streaming DataFrames/DataSets.",
            "STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION",
            "42KDE",
        )
    return IllegalArgumentException(
        f"Invalid streaming output mode: {mode}. Accepted output modes are 'Append', 'Complete', "
        "'Update'.",
        "STREAMING_OUTPUT_MODE.INVALID",
        "42KDE",
    )


def unresolved_column(name: str, there: list[str]) -> AnalysisException:
    """A column that isn't there."""
    known = ", ".join(f"`{column}`" for column in there)
    return AnalysisException(
        f"A column, variable, or function parameter with name `{name}` cannot be resolved. "
        f"Did you mean one of the following? [{known}].",
        "UNRESOLVED_COLUMN.WITH_SUGGESTION",
        "42703",
    )


def event_time_without_watermark() -> AnalysisException:
    """``eventTimeColumnName`` on a stream without a watermark."""
    return AnalysisException(
        "Watermark needs to be defined to reassign event time column. Failed to find watermark "
        "definition in the streaming query.",
        "CANNOT_ASSIGN_EVENT_TIME_COLUMN_WITHOUT_WATERMARK",
        "42611",
    )


def old_event_time(event_ms: int, watermark_ms: int, where: str) -> StateError:
    """A row put out that the next operator would have to drop."""
    return StateError(
        f"Error emitting a row {where}",
        f"Previous node emitted a row with eventTime={event_ms} which is older than "
        f"current_watermark_value={watermark_ms}. This can lead to correctness issues in the "
        "stateful operators downstream in the execution pipeline. Please correct the operator logic "
        "to emit rows after current global watermark value.",
        "EMITTING_ROWS_OLDER_THAN_WATERMARK_NOT_ALLOWED",
        "42815",
    )
