"""What a power cut would leave: the order of the sink's system calls, seen from outside."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_PROGRAM = """
import os, sys
import pyarrow as pa
from holdfast.sinks import SinkContext, parquet
from holdfast.storage import open_storage
schema = pa.schema([("n", pa.int64())])
sink = parquet(sys.argv[1])
sink.open(SinkContext("p", "s", 1, open_storage("memory://x"), schema, ()))
outputs = []
for partition in (0, 1):
    writer = sink.stager().open(0, partition, "a", schema)
    writer.write(pa.table({"n": [partition]}))
    outputs.append(writer.close())
sink.pre_commit(outputs)
os.write(1, b"DURABLE")
sink.commit(outputs, maybe_repeated=False)
"""
_CALLS = "fsync,link,linkat,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,write"


@pytest.fixture
def traced(tmp_path: Path) -> tuple[list[str], str]:
    """The program's calls below its folder, one a line, and that folder."""
    out, trace = tmp_path / "new" / "out", tmp_path / "trace"
    strace = ["strace", "-f", "-y", "-qq", "-s", "400", "-e", f"trace={_CALLS}", "-o", str(trace)]
    subprocess.run([*strace, sys.executable, "-c", _PROGRAM, str(out)], check=True)
    lines = [re.sub(r"^\d+ +", "", line) for line in trace.read_text().splitlines()]
    return [line for line in lines if str(tmp_path) in line or "DURABLE" in line], str(out)


def position(lines: list[str], *words: str) -> int:
    """The first line with all these words."""
    return next(i for i, line in enumerate(lines) if all(word in line for word in words))


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_names_and_bytes_reach_the_disk_before_anything_relies_on_them(
    traced: tuple[list[str], str],
) -> None:
    lines, out = traced
    staged = f"{out}/_holdfast/staged"
    durable = position(lines, "DURABLE")
    for name in ("1-0-0-a-", "1-0-1-a-"):
        assert position(lines, "fsync", f"{staged}/{name}") < durable
    assert position(lines, "fsync", f"{staged}>") < durable
    for folder in (str(Path(out).parent), out, f"{out}/_holdfast", staged):
        made = position(lines, "mkdir", f'"{folder}"')
        assert made < position(lines[made:], "fsync", f"{Path(folder).parent}>") + made < durable

    own = f"{out}/_holdfast"
    intended = position(lines, "link", f'"{own}/intents/0-')
    published = position(lines, "rename", f'"{out}/epoch-0000000000.parquet"')
    made = position(lines, "fsync", "/publishing/1-0-")
    assert made < position(lines[made:], "fsync", f"{own}/publishing>") + made < intended
    assert intended < position(lines[intended:], "fsync", f"{own}/intents>") + intended < published
    first_unlink = position(lines, "unlink", f'"{staged}/')
    assert published < position(lines[published:], "fsync", f"{out}>") + published < first_unlink
