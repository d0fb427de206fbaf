"""Rules that hold for the repository as a whole."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import holdfast

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "holdfast"
MODULES = sorted(SOURCE.rglob("*.py"))
LONGEST = 600

# The rooms from top to bottom, and whom each may import (ARCHITECTURE.md, "The rooms"): rooms below it.
ALL_BELOW = {"all below"}
FRONT = "the front"
VOCABULARY = "the user's vocabulary"
ALLOWED = {
    "cli": ALL_BELOW,
    "nexmark": {FRONT, VOCABULARY, "spark"},
    FRONT: ALL_BELOW,
    "sql": {VOCABULARY, "spark", "operators"},
    "testing": ALL_BELOW,
    "testing/simulation": {
        "driver",
        "tasks",
        "operators",
        "sinks",
        "checkpoint",
        "placement",
        "tiers",
        "state",
        "storage",
    },
    VOCABULARY: {"spark", "driver", "operators", "sinks", "checkpoint", "state"},
    "spark": ALL_BELOW,
    "driver": ALL_BELOW,
    "tasks": {"operators", "sinks", "checkpoint.entry", "tiers", "state", "storage"},
    "operators": {"state"},
    "sinks": {"checkpoint.entry", "state", "storage"},
    "checkpoint": {"tiers", "state", "storage"},
    "placement": {"state"},
    "tiers": {"state", "storage"},
    "state": set[str](),
    "storage": set[str](),
    "everybody's": set[str](),
}
EVERYBODYS = {"choices", "durations", "errors", "failpoints", "runtime", "sizes", "types"}
"""Modules that every room may import; they import each other only."""
SPEAKS_SPARK = (
    "spark/",
    "sql/",
    "nexmark/",
    "testing/source.py",
    # A program as users write them.
    "cli/demo_driver.py",
)
# What users hand to these, and get from them, are PySpark's frames and columns: signatures name their classes.
NAMES_SPARKS_CLASSES = {"grouped.py", "keyed.py", "steps.py", "stream.py", "windows.py"}
# Rooms that decide, commit, delete, recover or move; and those of which the outcome must be the same again.
ASKS_THE_RUNTIME = (
    "driver",
    "tasks",
    "operators",
    "sinks",
    "checkpoint",
    "placement",
    "tiers",
    "state",
)
OF_THE_RUNTIME = {"concurrent", "random", "secrets", "socket", "threading", "time", "uuid"}


def relative(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def name_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports_of(path: Path, *, for_types: bool = True) -> tuple[str, ...]:
    """Every module that a file imports, anywhere in it; ``for_types``: for type checking as well."""
    return tuple(_imports_of(path, for_types))


def _imports_of(path: Path, for_types: bool) -> Iterator[str]:
    tree = tree_of(path)
    left_out: set[ast.AST] = set()
    if not for_types:
        left_out = {part for node in ast.walk(tree) if _checks_types(node) for part in _then(node)}
    for node in ast.walk(tree):
        if node in left_out:
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


def _then(node: ast.AST) -> Iterator[ast.AST]:
    assert isinstance(node, ast.If)
    for step in node.body:
        yield from ast.walk(step)


def room_of(module: str) -> str:
    """The room of a module of Holdfast."""
    parts = module.split(".")[1:]
    if not parts:
        return FRONT
    inner = "/".join(parts[:2])
    if inner in ALLOWED:
        return inner
    if (SOURCE / parts[0]).is_dir():
        return parts[0]
    return "everybody's" if parts[0] in EVERYBODYS else VOCABULARY


def allowed(room: str) -> set[str]:
    """The rooms, or parts of rooms, that a room may import, besides those that are everybody's."""
    names = list(ALLOWED)
    return set(names[names.index(room) + 1 :]) if ALLOWED[room] == ALL_BELOW else ALLOWED[room]


def may_import(module: str, wanted: str) -> bool:
    """Whether a module may import another."""
    room, other = room_of(module), room_of(wanted)
    if other in (room, "everybody's") or other in allowed(room):
        return True
    return wanted.removeprefix("holdfast.") in allowed(room)


def test_dependencies_point_one_way() -> None:
    """For type checking as well."""
    wrong = [
        f"{relative(path)} may not import {name}"
        for path in MODULES
        for name in sorted(set(imports_of(path)))
        if name.split(".")[0] == "holdfast" and not may_import(name_of(path), name)
    ]
    assert not wrong


def rooms_in(page: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Of each row of the table of rooms: the folders or modules, and whom they import."""
    table = page.partition("\n## The rooms\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("| ")]
    for names, _, imports in rows[1:]:
        yield tuple(re.findall(r"`([^`]+)`", names)), imports.strip()


def test_the_table_of_rooms_has_every_folder_and_module_once_and_says_what_each_imports() -> None:
    told = list(rooms_in((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")))
    folders = {f"{path.name}/" for path in SOURCE.iterdir() if any(path.glob("*.py"))}
    inner = {f"{room}/" for room in ALLOWED if "/" in room}
    modules = {path.name for path in SOURCE.glob("*.py")}
    assert sorted(name for names, _ in told for name in names) == sorted(folders | inner | modules)
    said = {}
    for names, imports in told:
        (room,) = {room_of(_module(name)) for name in names}
        said[room] = set[str]() if imports == "—" else set(imports.split(", "))
    assert list(said) == list(ALLOWED)
    assert said == ALLOWED


def _module(name: str) -> str:
    """The module that a row of the table names."""
    inner = name.removesuffix(".py").removesuffix("__init__").strip("/").replace("/", ".")
    return f"holdfast.{inner}".strip(".")


def test_every_room_uses_all_that_it_is_said_to_import() -> None:
    used: dict[str, set[str]] = {room: set() for room in ALLOWED}
    for path in MODULES:
        for wanted in imports_of(path):
            if wanted.split(".")[0] == "holdfast":
                used[room_of(name_of(path))] |= {room_of(wanted), wanted.removeprefix("holdfast.")}
    unused = {room: allowed(room) - used[room] for room in ALLOWED if ALLOWED[room] != ALL_BELOW}
    assert not {room: names for room, names in unused.items() if names}


def test_rooms_import_only_those_below_them() -> None:
    names = list(ALLOWED)
    for place, room in enumerate(names):
        below = {room_of(f"holdfast.{name}") if "." in name else name for name in allowed(room)}
        assert below <= set(names[place + 1 :]), room


def packages_of(path: Path, *, for_types: bool = True) -> set[str]:
    return {name.split(".")[0] for name in imports_of(path, for_types=for_types)}


def test_only_the_spark_room_speaks_to_spark() -> None:
    others = [path for path in MODULES if not relative(path).startswith(SPEAKS_SPARK)]
    named = NAMES_SPARKS_CLASSES
    imported = {
        relative(path): packages_of(path, for_types=relative(path) not in named) for path in others
    }
    assert not [name for name, found in imported.items() if found & {"pyspark", "py4j"}]


def test_the_runtime_is_asked_for_time_threads_and_chance() -> None:
    """Or else the simulator would not decide of them."""
    decided = [path for path in MODULES if relative(path).split("/")[0] in ASKS_THE_RUNTIME]
    assert decided
    assert not [relative(path) for path in decided if packages_of(path) & OF_THE_RUNTIME]


def test_only_the_simulator_has_greenlets() -> None:
    """They are an extra that nobody in production has."""
    have = {relative(path) for path in MODULES if "greenlet" in packages_of(path)}
    assert all(name.startswith("testing/simulation/") for name in have), have


# The one room that knows what is inside Spark; its modules know nothing else of the room around it.
JVM = "spark/jvm/"
_JVM_MAY = ("holdfast.spark.jvm", "holdfast.spark.types")
# Public modules with an underscored neighbour are named one by one; of the others nothing is used.
_PRIVATE = re.compile(
    r"(pyspark\.(daemon|worker\w*|java_gateway|serializers|shuffle|util|traceback_utils|core\b.*"
    r"|sql\.(pandas|classic|utils|connect)\b.*)|py4j(?!\.protocol\b).*|(pyspark|py4j)\b.*\._\w+)$"
)


def internals_in(tree: ast.Module) -> list[str]:
    """Where a module touches what is Spark's own: underscored names, and modules that aren't for others."""
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_spark_s(node):
            found.append((node.lineno, node.attr))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr"):
            name = node.args[1].value if isinstance(node.args[1], ast.Constant) else ""
            if re.match(r"_(?!_|holdfast_)", str(name)):
                found.append((node.lineno, str(name)))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            of = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            names = [f"{of}{alias.name}" for alias in node.names]
            found += (
                (node.lineno, n) for n in names if _PRIVATE.match(n) or _PRIVATE.match(of[:-1])
            )
    return [f"{line}: {name}" for line, name in sorted(found)]


@cache
def _own_names() -> frozenset[str]:
    """The underscored names that Holdfast gives to things of its own."""
    made = set()
    for path in MODULES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                made.add(node.name)
            elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
                made.add(node.attr if isinstance(node, ast.Attribute) else node.id)
    return frozenset(made)


def _is_spark_s(node: ast.Attribute) -> bool:
    owner = ast.unparse(node.value)
    if not node.attr.startswith("_") or node.attr.startswith(("__", "_holdfast_")):
        return False
    if re.match(r"_j(vm|sc|df|sq|c|gd|rdd|sparkSession|[a-z]*Session)$|_gateway$", node.attr):
        return True
    return (
        isinstance(node.ctx, ast.Load)
        and owner not in ("self", "cls")
        and node.attr not in _own_names()
    )


# Pandas' own, for speed.
_NOT_SPARK_S = {"_exit", "_get_column_array", "_mgr", "_from_mgr"}


def test_only_one_room_knows_what_is_inside_spark() -> None:
    inside = [path for path in MODULES if relative(path).startswith(JVM)]
    wanted = {name for path in inside for name in imports_of(path)}
    of_spark = {name for name in wanted if name.startswith("holdfast.spark.")}
    assert not {name for name in of_spark if not name.startswith(_JVM_MAY)}
    found = [
        f"{relative(path)}:{place}"
        for path in MODULES
        if path not in inside
        for place in internals_in(tree_of(path))
        if place.split()[-1] not in _NOT_SPARK_S
    ]
    assert not found, "this belongs into src/holdfast/spark/jvm"


@pytest.mark.parametrize(
    "code",
    [
        "plan = frame._jdf.queryExecution()",
        "self._jvm.java.lang.System.exit(1)",
        "getattr(builder, '_options')",
        "from pyspark.sql.pandas.types import _create_converter_to_pandas",
        "from pyspark import daemon",
        "from pyspark.util import PythonEvalType",
        "from py4j.java_gateway import JavaGateway",
        "query._anything_new()",
    ],
)
def test_what_is_inside_spark_is_known_when_seen(code: str) -> None:
    assert internals_in(ast.parse(code))
    own = "from pyspark.sql import DataFrame\nself._own = other._own = 1\nself._own"
    assert not internals_in(ast.parse(own))


def test_the_rules_of_import_catch_what_they_should(tmp_path: Path) -> None:
    assert may_import("holdfast.sinks.parquet", "holdfast.checkpoint.entry")
    assert not may_import("holdfast.sinks.parquet", "holdfast.checkpoint.log")
    assert not may_import("holdfast.state.run", "holdfast.storage.base")
    assert not may_import("holdfast.storage.local", "holdfast.stream")
    assert may_import("holdfast.state.run", "holdfast.errors")
    assert may_import("holdfast.cli.verify", "holdfast.checkpoint.log")
    assert may_import("holdfast.stream", "holdfast.spark.guard")
    assert not may_import("holdfast.spark.guard", "holdfast.stream")
    assert not may_import("holdfast.spark.guard", "holdfast")
    assert not may_import("holdfast.driver.start", "holdfast.spark.start")
    assert not may_import("holdfast.testing.simulation.engine", "holdfast.spark.engine")
    assert not may_import("holdfast.runtime", "holdfast.state.run")
    chosen = "if TYPE_CHECKING:\n    import pyspark\nelse:\n    import threading\n"
    path = tmp_path / "chosen.py"
    path.write_text(chosen)
    assert list(imports_of(path)) == ["pyspark", "threading"]
    assert list(imports_of(path, for_types=False)) == ["threading"]


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
        for node in ast.walk(tree_of(path)):
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


def test_folders_of_tests_are_those_of_what_they_test() -> None:
    tested = [SOURCE, ROOT]
    folders = {
        path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")
    }
    apart = {Path("fixtures"), Path("lab")}
    unlike = [f for f in folders - apart if not any((place / f).is_dir() for place in tested)]
    assert not unlike


def test_modules_of_tests_have_names_of_their_own() -> None:
    """Their folders are no packages: of two with one name, whoever imports one may get the other."""
    paths = (ROOT / "tests").rglob("*.py")
    names = Counter(path.name for path in paths if path.name != "conftest.py")
    assert [name for name, times in names.items() if times > 1] == []


def test_tests_that_are_named_somewhere_are_there() -> None:
    named = re.compile(r"\btests(?:/\w+)+\.py\b")
    gone = {
        f"{name} → {found}"
        for name, text in texts()
        for found in named.findall(text)
        if not (ROOT / found).exists()
    }
    assert not gone
