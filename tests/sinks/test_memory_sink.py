from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import pytest

from holdfast.checkpoint.entry import StagedOutput
from holdfast.errors import ConfigurationError, InputError
from holdfast.sinks import Sink, SinkContext, memory, memory_table
from holdfast.sinks._memory import MemorySink
from holdfast.storage import open_storage
from holdfast.testing import SinkTests
from holdfast.testing.sinks import Rows

MakeContext = Callable[..., SinkContext]
Stage = Callable[..., StagedOutput]

_names = (f"sea-{n}" for n in itertools.count())


class TestMemorySink(SinkTests):
    crosses_processes = False
    failpoints = ("sink.write_ahead.before_deliver", "sink.write_ahead.after_deliver")

    def make_sink(self, place: str) -> Sink:
        return memory(place)

    def published(self, sink: Sink) -> Mapping[int, Rows]:
        assert isinstance(sink, MemorySink)
        return {epoch: table.to_pylist() for epoch, table in sink.epochs.items()}

    def contents(self, place: str) -> object:
        return dict(memory(place).epochs)


@pytest.fixture
def name() -> str:
    return next(_names)


def publish(sink: Sink, *outputs: StagedOutput) -> None:
    sink.pre_commit(outputs)
    sink.commit(outputs, maybe_repeated=False)


def test_rows_are_found_by_the_sink_or_by_its_name(
    make_context: MakeContext, stage: Stage, name: str
) -> None:
    sink = memory(name)
    sink.open(make_context())
    assert sink.table().num_rows == 0
    assert sink.table().column_names == ["word", "n"]
    publish(sink, stage(sink, 4, 1, ("rock", 2)), stage(sink, 4, 0, ("kelp", 1)))
    publish(sink, stage(sink, 5, 0, ("kelp", 3)))
    assert sink.rows() == [
        {"word": "kelp", "n": 1},
        {"word": "rock", "n": 2},
        {"word": "kelp", "n": 3},
    ]
    assert memory_table(name) == sink.table() == memory(name).table()
    assert list(sink.epochs) == [4, 5]
    assert sink.epochs[5].to_pylist() == [{"word": "kelp", "n": 3}]


def test_an_unknown_name_is_an_error_that_lists_the_known(
    make_context: MakeContext, name: str
) -> None:
    memory(name).open(make_context())
    with pytest.raises(InputError, match=f"no memory sink named 'nobody'.*{name}"):
        memory_table("nobody")


def test_a_restart_in_the_same_process_keeps_what_was_published(
    make_context: MakeContext, stage: Stage, name: str
) -> None:
    sink = memory(name)
    sink.open(make_context(1))
    publish(sink, stage(sink, 0, 0, ("kelp", 1)))
    again = memory(name)
    again.open(make_context(3))
    publish(again, stage(again, 1, 0, ("kelp", 2)))
    assert [row["n"] for row in again.rows()] == [1, 2]


@pytest.mark.parametrize(
    "changed",
    [
        {"pipeline": "another"},
        {"storage": open_storage("memory://another-directory")},
        {"claim": 1},  # the same directory, emptied and begun anew
    ],
    ids=str,
)
def test_another_pipeline_or_log_begins_anew(
    make_context: MakeContext, stage: Stage, name: str, changed: dict[str, object]
) -> None:
    sink = memory(name)
    sink.open(make_context(1))
    publish(sink, stage(sink, 0, 0, ("old", 1)))
    other = memory(name)
    other.open(make_context(**{"claim": 2, **changed}))
    assert other.rows() == []
    publish(other, stage(other, 0, 0, ("new", 1)))
    assert other.rows() == [{"word": "new", "n": 1}]


def test_two_pipelines_under_one_name_do_not_mix_their_rows(
    make_context: MakeContext, stage: Stage, name: str
) -> None:
    first, second = memory(name), memory(name)
    first.open(make_context(pipeline="first"))
    second.open(make_context(pipeline="second"))
    owed = stage(first, 0, 0, ("first", 1))
    with pytest.raises(ConfigurationError, match="belongs to sink-0 of pipeline 'second'"):
        first.commit([owed], maybe_repeated=False)
    publish(second, stage(second, 0, 0, ("second", 1)))
    assert memory(name).rows() == [{"word": "second", "n": 1}]
