"""The state variables of a transformWithState operator, as Spark's state metadata lists them."""

from __future__ import annotations

import json
from dataclasses import dataclass

from holdfast.choices import TimeKind
from holdfast.spark.adopt.old_query import StatefulOperator

__all__ = ["OldVariable", "timers_of", "variables_of"]

_TIMERS: dict[str, TimeKind] = {"processingtime": "processing", "eventtime": "event"}


@dataclass(frozen=True, slots=True)
class OldVariable:
    """A variable that the processor declared."""

    name: str
    kind: str
    """``ValueState``, ``ListState`` or ``MapState``."""
    has_ttl: bool


def variables_of(operator: StatefulOperator) -> tuple[OldVariable, ...]:
    """The variables of an operator, by name; those that Spark keeps for itself are left out.

    >>> told = '{"stateVariables":[{"stateName":"n","stateVariableType":"ValueState","ttlEnabled":false}]}'
    >>> variables_of(StatefulOperator(0, "transformWithStateExec", ("default",), told))
    (OldVariable(name='n', kind='ValueState', has_ttl=False),)
    """
    told = json.loads(operator.properties or "{}").get("stateVariables", ())
    found = (
        OldVariable(v["stateName"], v["stateVariableType"], bool(v["ttlEnabled"]))
        for v in told
        if not v["stateName"].startswith("$")
    )
    return tuple(sorted(found, key=lambda variable: variable.name))


def timers_of(operator: StatefulOperator) -> TimeKind | None:
    """The clock that the operator's timers go by, if it can have any."""
    told = json.loads(operator.properties or "{}")
    return _TIMERS.get(str(told.get("timeMode", "")).lower())
