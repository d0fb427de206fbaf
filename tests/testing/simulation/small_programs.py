"""What small programs for real and for simulated threads are written with."""

from __future__ import annotations

from collections.abc import Callable

from holdfast import runtime

Run = Callable[[Callable[[], object]], object]
"""Runs a program; what it returns, or raises."""


def started(target: Callable[[], object]) -> runtime.Thread:
    thread = runtime.thread(target, "another")
    thread.start()
    return thread


def elsewhere(act: Callable[[], object]) -> object:
    """What a call comes to in a thread of its own."""
    with runtime.beside(act) as answer:
        return answer.result()


def error_of(act: Callable[[], object]) -> str:
    try:
        act()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def kind_of(act: Callable[[], object]) -> str:
    return error_of(act).partition(":")[0]
