from __future__ import annotations

import io
import sys
from collections.abc import Callable

import pyarrow as pa
import pytest

from holdfast.checkpoint.entry import StagedOutput
from holdfast.errors import InputError
from holdfast.sinks import SinkContext, console

MakeContext = Callable[..., SinkContext]
Stage = Callable[..., StagedOutput]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_it_prints_after_the_commit_and_once(make_context: MakeContext, stage: Stage) -> None:
    stream = io.StringIO()
    sink = console(stream=stream)
    sink.open(make_context())
    outputs = [stage(sink, epoch, 0, ("kelp", epoch)) for epoch in (0, 1)]
    assert stream.getvalue() == ""
    sink.commit(outputs, maybe_repeated=False)
    sink.commit(outputs, maybe_repeated=True)
    assert stream.getvalue() == (
        "epoch 0: 1 row\nword | n\n-----+--\nkelp | 0\nepoch 1: 1 row\nword | n\n-----+--\nkelp | 1\n"
    )


def test_what_may_have_been_printed_before_says_so(
    make_context: MakeContext, stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = console()
    sink.open(make_context())
    sink.commit([stage(sink, 0, 0, ("kelp", 1))], maybe_repeated=True)
    assert capsys.readouterr().out.startswith("epoch 0: 1 row, maybe printed before\n")


def test_only_so_many_rows_and_so_wide() -> None:
    stream = io.StringIO()
    table = pa.table({"text": ["x" * 200, "y", "z"]})
    console(limit=1, stream=stream).deliver(0, table, maybe_repeated=False)
    title, name, rule, row, more = stream.getvalue().splitlines()
    assert (title, name, more) == ("epoch 0: 3 rows", "text", "… 2 more")
    assert len(row) == len(rule) == 60


def test_no_rows_may_be_printed_but_not_fewer() -> None:
    stream = io.StringIO()
    console(limit=0, stream=stream).deliver(0, pa.table({"n": [1]}), maybe_repeated=False)
    assert stream.getvalue() == "epoch 0: 1 row\nn\n-\n… 1 more\n"
    with pytest.raises(InputError, match="-1 rows"):
        console(limit=-1)


def test_a_terminal_gets_a_drawn_table_with_data_as_it_is() -> None:
    pytest.importorskip("rich")
    stream = Terminal()
    table = pa.table({"word": ["[bold]kelp[/]", "[/]"], "n": [1, None]})
    console(stream=stream).deliver(0, table, maybe_repeated=False)
    drawn = stream.getvalue()
    assert "epoch 0: 2 rows" in drawn
    assert "[bold]kelp[/]" in drawn
    assert "NULL" in drawn
    assert "┃" in drawn


def test_a_terminal_without_rich_gets_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    stream = Terminal()
    console(stream=stream).deliver(0, pa.table({"n": [1]}), maybe_repeated=False)
    assert stream.getvalue() == "epoch 0: 1 row\nn\n-\n1\n"


def test_a_stream_of_another_encoding_gets_what_it_can_take() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    table = pa.table({"wörd→": ["größer 🌊", "x" * 100, "kelp"]})
    console(limit=2, stream=stream).deliver(0, table, maybe_repeated=False)
    stream.seek(0)
    text = stream.read()
    assert "wörd\\u2192" in text
    assert "größer \\U0001f30a" in text
    assert "1 more" in text


@pytest.mark.parametrize("stream", [io.StringIO(), Terminal()])
def test_a_terminal_obeys_nothing_that_is_in_data(stream: io.StringIO) -> None:
    table = pa.table({"a\x1b]0;b": ["\x1b[2Jgone\rover\nnext\u202ef", "plain"]})
    console(stream=stream).deliver(0, table, maybe_repeated=False)
    text = stream.getvalue()
    assert "\\x1b[2Jgone\\rover\\nnext\\u202ef" in text
    assert "a\\x1b]0;b" in text
    assert not [told for told in ("\x1b[2J", "\x1b]0", "\r", "\u202e") if told in text]
