"""What users can call: what completion offers, what is exported, and that each of it has an example."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import rlcompleter
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast as hf
from holdfast import choices
from holdfast.operators.process.keyed import Context
from holdfast.spark.says_how import SaysHow

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "holdfast"

ANY: Any = None
STREAM = hf.Stream(())
KEYED = hf.KeyedStream(STREAM, ("word",))
GROUPED = STREAM.groupBy("word")
WINDOWED = hf.WindowedStream(STREAM, (), hf.tumbling("1 s"), hf.emit(), "append")

STEPS = {
    "drop", "filter", "select", "select_expr", "transform", "union", "where", "with_column",
    "with_column_renamed", "with_columns", "with_columns_renamed", "with_watermark",
}  # fmt: skip
ROWS = STEPS | {
    "changes", "connect", "groupBy", "iterate", "join", "join_as_of", "key_by", "process", "rows",
    "window", "write_to",
}  # fmt: skip
RESULT = ROWS | {"named", "side"}
OFFERED: list[tuple[Any, set[str]]] = [
    (STREAM, ROWS | {"df"}),
    (KEYED, {"aggregate", "connect", "drop_duplicates", "process", "top", "window"}),
    (hf.ConnectedStream(KEYED, STREAM), {"broadcast"}),
    (GROUPED, {"transformWithState", "transformWithStateInPandas"}),
    (WINDOWED, {"aggregate", "apply"}),
    (hf.Pipeline(()), {"explain", "start"}),
    (hf.AggregatedStream(KEYED, {}), RESULT),
    (hf.ProcessedStream(KEYED, ANY), RESULT),
    (hf.PartitionStream(STREAM, ANY), RESULT),
    (hf.DeduplicatedStream(KEYED), RESULT),
    (hf.WindowResultStream(WINDOWED, {}), RESULT),
    (hf.AppliedStream(WINDOWED, ANY, ""), RESULT),
    (hf.JoinedStream(STREAM, STREAM, (), (0, 0), "inner"), RESULT),
    (hf.VersionedStream(STREAM, STREAM, (), "inner"), RESULT),
    (hf.TopStream(KEYED, 1, ()), RESULT),
    (hf.TransformedStream(GROUPED, ANY), RESULT),
]
QUERY = {
    "await_termination", "checkpoint", "drain", "exception", "is_active", "name",
    "process_all_available", "progress", "recoveries", "spark_query", "status", "step", "stop",
    "undrain",
}  # fmt: skip


def public(names: Iterator[str] | list[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize(("thing", "names"), OFFERED, ids=lambda each: type(each).__name__)
def test_completion_offers_what_users_may_call_and_nothing_else(
    thing: Any, names: set[str]
) -> None:
    assert public(dir(thing)) == names
    assert public(dir(type(thing))) == names
    # The interactive interpreter looks at the class and its bases as well.
    assert public(rlcompleter.get_class_members(type(thing))) == names  # type: ignore[attr-defined]


def test_completion_of_a_running_pipeline_and_of_the_package() -> None:
    assert public(dir(hf.Query)) == QUERY
    assert public(dir(hf)) == public(hf.__all__)
    assert public(dir(hf.sinks)) == public(hf.sinks.__all__)
    assert public(dir(hf.testing)) == public(hf.testing.__all__)


def test_completion_is_tested_for_everything_that_looks_like_a_stream() -> None:
    kinds = {thing for name in hf.__all__ if _is_like_a_stream(thing := getattr(hf, name))}
    assert kinds - {hf.Query, hf.Rows, hf.ResultStream} == {type(thing) for thing, _ in OFFERED}


def _is_like_a_stream(thing: object) -> bool:
    return inspect.isclass(thing) and issubclass(thing, SaysHow)


# ---- exported


def test_whatever_a_stream_or_a_query_returns_is_exported() -> None:
    for name in ("Query", "QueryStatus", "EpochProgress", "Recovery", "Ahead", "PlacedPartition"):
        assert inspect.isclass(getattr(hf, name)), name
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = hf.nonsense  # type: ignore[attr-defined]


def modules() -> Iterator[Any]:
    for info in pkgutil.walk_packages(hf.__path__, "holdfast."):
        yield importlib.import_module(info.name)


# These are raised by one part for another, which takes them for what they are.
TAKEN_INSIDE = {"HostGoneError"}


def test_every_error_that_can_reach_a_user_is_exported() -> None:
    errors = {
        thing
        for module in modules()
        for thing in vars(module).values()
        if inspect.isclass(thing) and issubclass(thing, hf.HoldfastError)
    }
    exported = {getattr(hf, name) for name in hf.__all__ if name.endswith("Error")}
    # One that isn't comes as one that is, which says what to do.
    known = exported - {hf.HoldfastError}
    others = {error.__name__ for error in errors if not known & {*error.__mro__}}
    assert others - {"HoldfastError"} == TAKEN_INSIDE
    assert {e for e in errors if e.__module__ == "holdfast.errors"} == exported


def test_the_package_can_be_had_without_spark() -> None:
    check = "import sys, holdfast as hf; dir(hf); sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


# ---- examples


def with_examples() -> Iterator[tuple[str, Any]]:
    """Everything that users can name, and every method of everything like a stream."""
    for package in (hf, hf.sinks, hf.testing):
        for name in package.__all__:
            thing = getattr(package, name)
            if not name.startswith("__") and name not in ("Duration", "Size", *choices.__all__):
                yield f"{package.__name__}.{name}", thing
            # A query's members are shown in one example, that of the class.
            if _is_like_a_stream(thing) and thing is not hf.Query:
                for member in public(dir(thing)):
                    yield (
                        f"{package.__name__}.{name}.{member}",
                        inspect.getattr_static(thing, member),
                    )


def test_everything_that_users_call_has_an_example() -> None:
    silent = [name for name, thing in with_examples() if ">>>" not in (thing.__doc__ or "")]
    assert not silent
    assert [name for name in QUERY if not _docs_of(hf.Query, name)] == []


def _docs_of(kind: type, name: str) -> str:
    return getattr(inspect.getattr_static(kind, name), "__doc__", "") or ""


def test_the_examples_are_run() -> None:
    """They are, as far as pytest collects them: a decorated method, for one, is easily passed over."""
    collect = ["-m", "pytest", "--collect-only", "-q", "--doctest-modules", str(SOURCE)]
    listed = subprocess.run(
        [sys.executable, *collect], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    collected = {line.rpartition("::")[2] for line in listed.splitlines() if "::" in line}
    missing = []
    for name, thing in with_examples():
        function: Any = getattr(thing, "fget", None) or getattr(thing, "func", None) or thing
        function = inspect.unwrap(function)
        whole = getattr(function, "__qualname__", "")
        where = f"{function.__module__}.{whole}" if whole else function.__name__
        if where not in collected:
            missing.append(f"{name} ({where})")
    assert not missing


def test_types_of_options_are_exported_and_stand_in_one_module() -> None:
    words = set(choices.__all__) - {"check_choice"}
    assert words <= set(hf.__all__)
    elsewhere = [
        path.name
        for path in SOURCE.glob("*.py")
        if path.name != "choices.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Literal"
    ]
    assert not elsewhere


# ---- earlier names


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: KEYED.window(hf.tumbling(1), output="update"), "it is called output_mode"),  # type: ignore[call-arg]
        (lambda: KEYED.window(hf.tumbling(1), trigger=hf.emit()), "it is called emit"),  # type: ignore[call-arg]
        (lambda: STREAM.window(hf.tumbling(1), trigger=hf.emit()), r"Rows.window\(\) has no"),  # type: ignore[call-arg]
        (lambda: KEYED.top(1, "n", output="append"), "it is called output_mode"),  # type: ignore[call-arg]
        (lambda: hf.trigger(early_rows=1), r"say hf.emit\(…\) for when windows"),  # type: ignore[attr-defined]
        (lambda: Context.__new__(Context).output("late", ()), "say ctx.side_output"),  # type: ignore[attr-defined]
        (
            lambda: hf.testing.ProcessorTester(ANY, columns="", keys="", allowed_lateness_ms=1),  # type: ignore[call-arg]
            r"ProcessorTester\(\) has no argument 'allowed_lateness_ms'. What to do: it is called allowed_lateness",
        ),
    ],
)
def test_a_word_that_was_used_before_says_what_it_is_called_now(call: Any, said: str) -> None:
    with pytest.raises(hf.InputError, match=said):
        call()
