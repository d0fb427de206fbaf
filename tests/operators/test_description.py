"""Operators without a name that change places are noticed; those that merely change are not."""

from __future__ import annotations

from holdfast.operators.description import Description, _code, find_moved

A = Description("process by k: string", ("total: value double",), "code-a", "reads-a")
B = Description("process by k: string", ("last: value string",), "code-b", "reads-b")
COUNTS = [Description("aggregate by k: string", reads=f"reads-{i}") for i in range(3)]


def moved(
    before: list[Description], now: list[Description], named: tuple[str, ...] = ()
) -> tuple[str, str] | None:
    def numbered(those: list[Description]) -> dict[str, Description]:
        return {f"process-{i}": d for i, d in enumerate(those)}

    names = numbered(now)
    return find_moved(numbered(before), names, [name for name in names if name not in named])


def test_operators_that_have_changed_places() -> None:
    assert moved([A, B], [B, A]) == ("process-0", "process-1")
    assert moved(COUNTS[:2], COUNTS[1::-1]) == ("process-0", "process-1")


def test_an_operator_put_before_another_or_taken_away_before_it() -> None:
    assert moved([A], [B, A]) == ("process-0", "process-1")
    assert moved([A, B], [B]) == ("process-1", "process-0")
    assert moved(COUNTS[:1], [COUNTS[1], COUNTS[0]]) == ("process-0", "process-1")


def test_places_changed_along_with_something_else() -> None:
    wider = Description(B.what, (*B.states, "more: value long"), B.code, "reads-other")
    assert moved([A, B], [wider, A]) == ("process-0", "process-1")
    renamed = Description(A.what, A.states, "code-new", A.reads)
    assert moved([A, B], [B, renamed]) == ("process-0", "process-1")


def test_operators_that_merely_change() -> None:
    wider = Description(A.what, (*A.states, "more: value long"), A.code, A.reads)
    assert moved([A, B], [wider, B]) is None
    assert moved([A, B], [A, B, wider]) is None
    elsewhere = Description(A.what, A.states, A.code, B.reads)
    assert moved([A, B], [elsewhere, B]) is None
    assert moved([A, A], [Description(A.what, A.states, A.code, "reads-new"), A]) is None


def test_operators_with_names_of_their_own() -> None:
    assert moved([A, B], [B, A], named=("process-0", "process-1")) is None


def test_descriptions_of_entries_that_only_say_what_is_computed() -> None:
    old = Description.parse(A.what)
    assert old == Description(A.what)
    assert moved([old, old], [B, A]) is None


def test_descriptions_are_read_back_as_they_were_written() -> None:
    for described in (
        A,
        B,
        *COUNTS,
        Description("aggregate by k: string\nstate: count() -> int64"),
    ):
        assert Description.parse(str(described)) == described


def test_code_is_told_apart_by_its_parameters_and_by_what_it_does() -> None:
    class Given:
        def __init__(self, *given: object) -> None:
            self.given = given
            self.not_plain = object()

    assert _code(Given("a")) == _code(Given("a"))
    assert _code(Given({"a": [1, None]})) == _code(Given({"a": [1, None]}))
    assert len({_code(Given(each)) for each in ("a", "b", ("a",), ["b"], {"a": 1}, {1, 2})}) == 6
    deep: list[object] = []
    for _ in range(40):
        deep = [deep, deep]
    assert _code(Given(deep)) == _code(Given(deep))
    assert _code(lambda rows: rows + 1) != _code(lambda rows: rows + 2)
