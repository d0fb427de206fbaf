"""Text may hold any bytes, as Spark's does; everything else that Arrow objects to is damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import CorruptionError
from holdfast.state import local
from holdfast.state.blocks import Block, OpenRun, RunTotals, checksum, verify_blocks
from holdfast.state.hashing import FULL_RANGE, HashRange
from holdfast.state.local import LocalRun, write_local
from holdfast.state.merge import merge_runs
from holdfast.state.run import StoredForm
from holdfast.state.schema import Column, SchemaRecord, TableSchema
from holdfast.state.stored import StoredRun, encode_stored
from holdfast.state.text import python_values, text_array
from holdfast.state.view import TableView

SCHEMA = TableSchema(
    "t.groups",
    (Column(1, "k", pa.string()),),
    (Column(2, "v", pa.struct([("texts", pa.list_(pa.string())), ("n", pa.int64())])),),
)
BAD = b"\xff\xfe bad"


def rows(n: int) -> pa.Table:
    text = BAD.decode(errors="surrogateescape")
    values = [{"texts": ["ok"], "n": n}, {"texts": [text, None], "n": n}]
    columns = [text_array(["ok", text], pa.string()), text_array(values, SCHEMA.values[0].type)]
    return pa.Table.from_arrays([pa.array([1, 2], pa.uint64()), *columns], schema=SCHEMA.arrow)


def stored_run(table: pa.Table) -> StoredRun:
    data, info = encode_stored([table], SCHEMA.arrow)
    whole = bytes(data)
    form = StoredForm("runs/1-x", info.size_bytes, info.checksum, info.tail_bytes)
    return StoredRun.open("1-x", form, lambda start, length: whole[start : start + length])


def test_both_forms_of_a_run_take_any_bytes(tmp_path: Path) -> None:
    write_local(tmp_path / "a.run", SCHEMA.arrow, [rows(1)])
    for run in (LocalRun.open(tmp_path / "a.run", verify=True), stored_run(rows(1))):
        run.verify()
        assert run.block(0).equals(rows(1).combine_chunks().to_batches()[0])


def test_runs_with_any_bytes_are_merged_and_looked_up(tmp_path: Path) -> None:
    write_local(tmp_path / "a.run", SCHEMA.arrow, [rows(2)])
    newest = LocalRun.open(tmp_path / "a.run", verify=True)
    parts: list[tuple[OpenRun, HashRange]] = [
        (newest, FULL_RANGE),
        (stored_run(rows(1)), FULL_RANGE),
    ]
    merged = pa.concat_tables(merge_runs(SCHEMA, parts, FULL_RANGE, drop_tombstones=True))
    assert merged.combine_chunks().equals(rows(2).combine_chunks())
    wanted = rows(0).select(["k"])
    found = TableView(SCHEMA, parts).lookup(rows(0).column(0).combine_chunks().to_numpy(), wanted)
    assert [row["n"] for row in python_values(found.rows.column("v"))] == [2, 2]


KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = []
TEXT = st.binary(max_size=6).map(lambda b: b.decode(errors="surrogateescape")) | st.none()
KINDS += [(pa.string(), TEXT), (pa.list_(pa.string()), st.none() | st.lists(TEXT, max_size=3))]
KINDS += [
    (
        pa.struct([("a", pa.string()), ("b", pa.binary())]),
        st.none() | st.fixed_dictionaries({"a": TEXT, "b": st.none() | st.binary(max_size=3)}),
    ),
    (
        pa.map_(pa.string(), pa.string()),
        st.none() | st.lists(st.tuples(TEXT.filter(lambda t: t is not None), TEXT), max_size=3),
    ),
]


@given(data=st.data())
def test_values_come_back_as_they_were(data: st.DataObject) -> None:
    kind, values_of = data.draw(st.sampled_from(KINDS))
    values = data.draw(st.lists(values_of, max_size=5))
    array = text_array(values, kind)
    assert array.type == kind
    assert python_values(array) == values
    assert python_values(array.slice(1)) == values[1:]
    assert python_values(pa.chunked_array([array, array], kind)) == values * 2


def local_file(path: Path, header: bytes, block: bytes) -> None:
    """A file whose checksums are all right, whatever is in it."""
    where = Block(1, 1, 1, len(header), len(block), 1, checksum(block))
    totals = RunTotals(1, 0, (where,))
    index = msgspec.json.encode(
        local._LocalIndex(local.FORMAT, len(header), checksum(header), totals)
    )
    tail = local._TAIL.pack(len(index), int(checksum(index), 16), local.MAGIC)
    path.write_bytes(header + block + local._END_OF_STREAM + index + tail)


def test_what_arrow_cannot_read_is_damage_and_not_its_error(tmp_path: Path) -> None:
    header = SCHEMA.arrow.serialize().to_pybytes()
    local_file(tmp_path / "block.run", header, b"no record batch" * 9)
    run = LocalRun.open(tmp_path / "block.run", verify=True)
    with pytest.raises(CorruptionError, match=r"block\.run: block 0 can't be read"):
        run.block(0)
    local_file(tmp_path / "schema.run", b"no schema" * 9, b"")
    with pytest.raises(CorruptionError, match=r"schema\.run: its schema can't be read"):
        LocalRun.open(tmp_path / "schema.run")
    tail = b"no footer" * 9
    form = StoredForm("runs/1-x", len(tail), checksum(tail), len(tail))
    with pytest.raises(CorruptionError, match="1-x: its footer can't be read"):
        StoredRun.open("1-x", form, lambda start, length: tail[start : start + length])
    for arrow in ("no base64!", "bm8gc2NoZW1h"):
        with pytest.raises(CorruptionError, match=r"the schema of table 't\.groups'"):
            TableSchema.from_record(SchemaRecord("t.groups", 1, (), arrow))


def test_rows_that_are_not_well_formed_are_damage(tmp_path: Path) -> None:
    """An offset that points behind the text: it would be read from somebody else's memory."""
    table = rows(1)
    text = table.column("k").combine_chunks()
    offsets = pa.array([0, 99, 2 + len(BAD)], pa.int32()).buffers()[1]
    wild = pa.Array.from_buffers(pa.string(), 2, [None, offsets, text.buffers()[2]])
    batch = pa.RecordBatch.from_arrays(
        [table.column(0).chunk(0), wild, table.column(2).chunk(0)], schema=SCHEMA.arrow
    )

    class Wild:
        name, schema = "wild", SCHEMA.arrow
        totals = RunTotals(2, 0, (Block(2, 1, 2, 0, 1, 1, ""),))
        blocks = totals.blocks

        def block(self, index: int) -> pa.RecordBatch:
            return batch

    with pytest.raises(CorruptionError, match="block 0 is not well-formed"):
        verify_blocks(Wild(), CorruptionError)  # type: ignore[arg-type]
