"""Rules that hold for the repository as a whole."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "holdfast"
MODULES = sorted(SOURCE.rglob("*.py"))
LONGEST = 600

# Who may import whom (ARCHITECTURE.md). "" stands for the modules at the top of the package.
EVERYBODY_MAY = {
    "holdfast.choices",
    "holdfast.durations",
    "holdfast.errors",
    "holdfast.failpoints",
    "holdfast.runtime",
    "holdfast.sizes",
    "holdfast.types",
}
ALLOWED = {
    "state": set[str](),
    "storage": set[str](),
    "operators": {"state"},
    "checkpoint": {"state", "storage"},
    "tiers": {"state", "storage", "checkpoint"},
    "placement": {"state", "storage", "checkpoint"},
    "sinks": {"checkpoint.entry", "state", "storage"},
    "tasks": {"operators", "checkpoint", "sinks", "tiers", "state", "storage"},
    "driver": {
        "tasks",
        "operators",
        "checkpoint",
        "placement",
        "tiers",
        "sinks",
        "state",
        "storage",
    },
    # The words of an aggregate are the user's; planning them is Spark's.
    "spark": {
        "driver",
        "tasks",
        "operators",
        "checkpoint",
        "placement",
        "tiers",
        "sinks",
        "state",
        "storage",
        "aggregates",
    },
    "testing": {
        "driver",
        "tasks",
        "operators",
        "checkpoint",
        "placement",
        "tiers",
        "sinks",
        "state",
        "storage",
        "spark",
        "",
    },
    "serve": {
        "driver",
        "tasks",
        "operators",
        "checkpoint",
        "placement",
        "tiers",
        "sinks",
        "state",
        "storage",
        "spark",
        "",
    },
    # What is written with the user's words: SQL becomes streams, the benchmark's queries are a program.
    "sql": {"operators", "spark", ""},
    "nexmark": {"sinks", "spark", ""},
    "": {"spark", "driver", "sinks", "operators", "checkpoint", "state", "testing", "sql"},
    "cli": {"*"},
}
# Programs that use Holdfast as its users do, rather than parts of it.
PROGRAMS = {"holdfast.spark.demo_driver"}
SPEAKS_SPARK = ("spark/", "testing/source.py", "sql/", "nexmark/")


def relative(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> Iterator[str]:
    """Every module that a file imports, anywhere in it, except for type checking alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        inner for node in ast.walk(tree) if _checks_types(node) for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{relative(path)} imports relatively"
            # "from holdfast import sinks" imports a room: the name counts, if it is a module.
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                file = SOURCE.parent / Path(*whole.split("."))
                is_module = file.is_dir() or file.with_suffix(".py").exists()
                yield whole if is_module else str(node.module)


def _checks_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def room_of(module: str) -> str:
    """The room of a module of Holdfast; "" for those at the top."""
    parts = module.split(".")
    in_a_room = len(parts) > 1 and (SOURCE / parts[1]).is_dir()
    return parts[1] if in_a_room else ""


def may_import(module: str, wanted: str) -> bool:
    room, other = room_of(module), room_of(wanted)
    allowed = ALLOWED["cli"] if module in PROGRAMS else ALLOWED[room]
    if wanted in EVERYBODY_MAY or room == other or "*" in allowed or other in allowed:
        return True
    return any(wanted == f"holdfast.{name}" for name in allowed)


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_dependencies_point_one_way(path: Path) -> None:
    wanted = {name for name in imports_of(path) if name.split(".")[0] == "holdfast"}
    wrong = sorted(name for name in wanted if not may_import(name_of(path), name))
    assert not wrong, f"{relative(path)} may not import {', '.join(wrong)}"


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_only_the_spark_room_speaks_to_spark(path: Path) -> None:
    imported = {name.split(".")[0] for name in imports_of(path)}
    if not relative(path).startswith(SPEAKS_SPARK):
        assert not imported & {"pyspark", "py4j"}


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_only_the_simulator_has_greenlets(path: Path) -> None:
    """They are an extra that nobody in production has."""
    imported = {name.split(".")[0] for name in imports_of(path)}
    assert relative(path).startswith("testing/simulation/") or "greenlet" not in imported


def test_the_rules_of_import_catch_what_they_should() -> None:
    assert may_import("holdfast.sinks.parquet", "holdfast.checkpoint.entry")
    assert not may_import("holdfast.sinks.parquet", "holdfast.checkpoint.log")
    assert not may_import("holdfast.state.run", "holdfast.storage.base")
    assert not may_import("holdfast.storage.local", "holdfast.stream")
    assert may_import("holdfast.state.run", "holdfast.errors")
    assert may_import("holdfast.cli.verify", "holdfast.checkpoint.log")


def public_names() -> Iterator[tuple[str, object]]:
    for info in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        module = importlib.import_module(info.name)
        yield info.name, module
        for name in getattr(module, "__all__", ()):
            yield f"{info.name}.{name}", getattr(module, name)


def test_every_public_name_has_words() -> None:
    silent = []
    for name, thing in public_names():
        speaks = inspect.ismodule(thing) or inspect.isclass(thing) or inspect.isroutine(thing)
        if speaks and not (getattr(thing, "__doc__", None) or "").strip():
            silent.append(name)
    assert not silent


def tracked_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    paths = (ROOT / name for name in listed.stdout.split("\0") if name)
    return [path for path in paths if path.is_file()]


def texts() -> Iterator[tuple[str, str]]:
    for path in tracked_files():
        data = path.read_bytes()
        if b"\0" not in data[:8192]:
            yield str(path.relative_to(ROOT)), data.decode("utf-8", errors="replace")


def test_no_source_file_is_too_long_to_read() -> None:
    lengths = {name: text.count("\n") for name, text in texts() if name.endswith(".py")}
    assert not {name: length for name, length in lengths.items() if length > LONGEST}


# Written in pieces, so that this file does not find itself.
_REGISTRIES = re.compile(
    r"(?:py" r"pi\.org|files\.pythonhosted" r"\.org|registry\." r"npmjs|repo1?\.maven" r"\.|artif" r"actory|"
    r"index" r"-url\s*=\s*.?https?:)",
    re.IGNORECASE,
)  # fmt: skip
_MACHINES = re.compile(r"(?:/ho" r"me/\w|/Us" r"ers/\w|/ro" r"ot/|/wo" r"rk/\w|[A-Z]:\\\\Us" r"ers)")  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "what"),
    [(_REGISTRIES, "a package registry"), (_MACHINES, "a path of somebody's machine")],
    ids=["registries", "machines"],
)
def test_no_file_names_addresses_that_only_hold_here(pattern: re.Pattern[str], what: str) -> None:
    found = {name: match[0] for name, text in texts() if (match := pattern.search(text))}
    assert not found, f"{what} is named in these files"


def test_errors_are_never_swallowed() -> None:
    swallowing = []
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ExceptHandler):
                continue
            broad = node.type is None or (
                isinstance(node.type, ast.Name) and node.type.id in ("Exception", "BaseException")
            )
            does_nothing = all(isinstance(step, (ast.Pass, ast.Continue)) for step in node.body)
            if broad and does_nothing:
                swallowing.append(f"{relative(path)}:{node.lineno}")
    assert not swallowing


def targets_of(page: Path) -> list[str]:
    """What a Markdown page links to, without the anchors."""
    return re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))


def test_every_page_of_the_documentation_is_linked_from_its_index() -> None:
    pages = sorted((ROOT / "docs").rglob("*.md"))
    index = ROOT / "docs" / "index.md"
    if not pages:
        return
    assert index in pages, "docs/ has pages but no index.md"
    linked = {(index.parent / target).resolve() for target in targets_of(index)}
    assert not [str(p.relative_to(ROOT)) for p in pages if p != index and p not in linked]


def test_links_between_documents_lead_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)} → {target}"
        for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
        for target in targets_of(page)
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert not broken
