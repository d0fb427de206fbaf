"""The end of input, as the thread sees it that waits for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from holdfast import runtime
from holdfast.driver.ending import await_input
from holdfast.testing.simulation import World, simulating


class Endless:
    """A stream in the midst of an epoch that takes ten minutes."""

    is_active = True

    def await_end(self) -> None:
        runtime.sleep(600)
        self.is_active = False


def test_who_waits_for_sources_to_end_sleeps_also_while_the_pipeline_is_stopped() -> None:
    """It used to ask again and again, without a pause, as long as the last epoch took."""
    with simulating(World(1)) as world:

        def wait() -> bool:
            stream = Endless()
            end = SimpleNamespace(may_be_said=True, is_said=False)
            running: Any = SimpleNamespace(
                started=stream,
                stopping=runtime.event(),
                options=SimpleNamespace(available_now=False, manual=False),
                parts=SimpleNamespace(input_end=end, engine=SimpleNamespace(ticks=None)),
            )

            def stop() -> None:
                runtime.sleep(1)
                running.stopping.set()

            runtime.thread(stop, "user").start()
            await_input(running)
            return not stream.is_active

        thread = world.process("driver").spawn(wait, "main")
        assert world.run(lambda: thread.ended, most_steps=200)
        assert thread.value is True
