from __future__ import annotations

import itertools
import json

import pytest

from holdfast.checkpoint.entry import seal
from holdfast.checkpoint.log import Log
from holdfast.checkpoint.pins import Pin, live_pins, pin, read_pins, unpin
from holdfast.errors import ConfigurationError, CorruptionError, InputError
from tests.checkpoint.log_support import FlakyStorage, checkpoint_fields, open_log

_names = itertools.count()


@pytest.fixture
def storage() -> FlakyStorage:
    return FlakyStorage(f"pins-{next(_names)}")


@pytest.fixture
def log(storage: FlakyStorage) -> Log:
    log = open_log(storage)
    log.append_checkpoint(**checkpoint_fields(0, ["runs/0-a"]))
    return log


def test_a_pin_can_be_read_by_programs_and_people(storage: FlakyStorage, log: Log) -> None:
    made = pin(storage, 1, "fork 'what-if'", pin_id="f-1", now_ms=5, reason="testing")
    assert read_pins(storage) == {"f-1": made}
    assert made == Pin(id="f-1", entry=1, owner="fork 'what-if'", created_ms=5, reason="testing")
    assert json.loads(storage.get("pins/f-1"))["content"]["entry"] == 1
    unpin(storage, "f-1")
    unpin(storage, "f-1")
    assert read_pins(storage) == {}


@pytest.mark.parametrize("bad", ["", "a/b", "../x", ".p", "a b"])
def test_an_id_must_be_a_name(storage: FlakyStorage, log: Log, bad: str) -> None:
    with pytest.raises(InputError, match="pin's id"):
        pin(storage, 1, "me", pin_id=bad, now_ms=0)
    with pytest.raises(InputError):
        unpin(storage, bad)


@pytest.mark.parametrize("number", [0, 2, 99])
def test_only_a_checkpoint_that_is_there_can_be_pinned(
    storage: FlakyStorage, log: Log, number: int
) -> None:
    open_log(storage)
    with pytest.raises(ConfigurationError, match=f"entry {number}"):
        pin(storage, number, "me", pin_id="p", now_ms=0)
    assert read_pins(storage) == {}


def test_an_id_is_used_once_and_a_repeated_request_is_the_same_pin(
    storage: FlakyStorage, log: Log
) -> None:
    storage.faults = ["repeat"]
    pin(storage, 1, "me", pin_id="p", now_ms=0)
    with pytest.raises(ConfigurationError, match="already"):
        pin(storage, 1, "you", pin_id="p", now_ms=0)
    assert read_pins(storage)["p"].owner == "me"


def test_a_damaged_pin_is_named(storage: FlakyStorage, log: Log) -> None:
    pin(storage, 1, "me", pin_id="p", now_ms=0)
    storage.put("pins/q", storage.get("pins/p").replace(b"me", b"yo"))
    with pytest.raises(CorruptionError, match="pins/q"):
        read_pins(storage)


def test_a_pin_that_is_no_text_is_damaged(storage: FlakyStorage, log: Log) -> None:
    content = b'{"id":"q","entry":1,"owner":"\xff","created_ms":0}'
    storage.put("pins/q", seal(content))
    with pytest.raises(CorruptionError, match="pins/q"):
        read_pins(storage)


def test_a_pin_under_another_name_is_no_pin_of_that_name(storage: FlakyStorage, log: Log) -> None:
    pin(storage, 1, "me", pin_id="p", now_ms=0)
    storage.put("pins/q", storage.get("pins/p"))
    with pytest.raises(CorruptionError, match="pins/q"):
        read_pins(storage)


def test_a_pin_whose_owner_may_have_died_ends_by_itself(storage: FlakyStorage, log: Log) -> None:
    pin(storage, 1, "me", pin_id="short", now_ms=100, lasts_ms=50)
    pin(storage, 1, "me", pin_id="for-ever", now_ms=100)
    assert set(live_pins(storage, 149)) == {"short", "for-ever"}
    assert set(live_pins(storage, 150)) == {"for-ever"}
    assert set(read_pins(storage)) == {"for-ever"}
