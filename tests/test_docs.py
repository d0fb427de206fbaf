"""The Python blocks of every document run, in order, as one program per document.

A block behind the comment ``<!-- not run: reason -->`` is only compiled.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted(
    path for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")) if path.name != "CHANGELOG.md"
)
# Those that run many pipelines.
LONG = ("dataflow.md", "joins.md", "windows.md")
_BLOCK = re.compile(
    r"^(?P<not_run><!-- not run: .+? -->\n\n?)?```python\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of Python in a document."""

    code: str
    line: int
    runs: bool

    def compiled(self, path: Path) -> Any:
        # Empty lines in front make tracebacks point into the document.
        return compile("\n" * (self.line - 1) + self.code, str(path), "exec")


def blocks_of(text: str) -> list[Block]:
    """The Python blocks of a Markdown text."""
    return [
        Block(
            code=match["code"],
            line=text.count("\n", 0, match.start("code")) + 1,
            runs=match["not_run"] is None,
        )
        for match in _BLOCK.finditer(text)
    ]


def test_blocks_are_found_with_their_lines_and_whether_they_run() -> None:
    text = "# T\n```python\na = 1\n```\n```bash\nls\n```\n<!-- not run: needs a cluster -->\n```python\nb\nc\n```\n"
    assert blocks_of(text) == [Block("a = 1\n", 3, True), Block("b\nc\n", 10, False)]


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=pytest.mark.slow) if path.name in LONG else path
        for path in DOCUMENTS
    ],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_the_python_of_a_document_runs(
    path: Path, surroundings: Callable[[str], dict[str, Any]]
) -> None:
    text = path.read_text(encoding="utf-8")
    blocks = blocks_of(text)
    assert len(blocks) == len(re.findall(r"^```python", text, re.MULTILINE)), "a block has no end"
    namespace = surroundings("".join(block.code for block in blocks if block.runs))
    namespace["__name__"] = "__main__"
    for block in blocks:
        code = block.compiled(path)
        if block.runs:
            exec(code, namespace)
