"""Epochs that are too far ahead of the log wait, and don't ask for one checkpoint right after the other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from holdfast import runtime
from holdfast.checkpoint.ledger import Ahead
from holdfast.driver.ahead import wait_while_ahead
from holdfast.driver.requests import Requests
from holdfast.errors import StorageError
from holdfast.testing.simulation import World, simulating

_FAILS_S = 10.0


def test_attempts_that_fail_at_once_follow_each_other_with_a_pause() -> None:
    attempts: list[float] = []

    def body() -> None:
        ends = runtime.monotonic() + _FAILS_S
        requests, ahead = Requests(), Ahead(1, 1 << 40, None)
        coordinator = SimpleNamespace(last_error=None)
        running: Any = SimpleNamespace(
            name="p",
            ending=False,
            waiting=None,
            requests=requests,
            coordinator=coordinator,
            ledger=SimpleNamespace(ahead=lambda: ahead),
            options=SimpleNamespace(max_ahead_bytes=1, max_ahead_s=1e9),
            parts=SimpleNamespace(now_ms=lambda: 0),
        )

        def take_checkpoints() -> None:
            nonlocal ahead
            while ahead.unsaved_bytes:
                asked = requests.await_asked(lambda: False, None)
                attempts.append(runtime.monotonic())
                failed = runtime.monotonic() < ends
                coordinator.last_error = StorageError("the disk is full") if failed else None
                ahead = ahead if failed else Ahead(0, 0, None)
                requests.answer(asked)

        taking = runtime.thread(take_checkpoints, "checkpoints")
        taking.start()
        wait_while_ahead(cast(Any, running))
        taking.join()

    with simulating(World(1)) as world:
        thread = world.process("driver").spawn(body, "main")
        world.run(lambda: thread.ended, most_steps=100_000)
        assert thread.error is None
    assert _FAILS_S <= attempts[-1] - attempts[0] < 2 * _FAILS_S
    assert _FAILS_S / 2 < len(attempts) < 2 * _FAILS_S
