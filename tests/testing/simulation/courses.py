"""A world in which much happens, to be run again."""

from __future__ import annotations

import sys

from holdfast import runtime
from holdfast.failpoints import failpoint
from holdfast.testing.simulation import World, simulating


def course(seed: int) -> str:
    """All that happens in a world in which the threads of two processes share a few things."""
    with simulating(World(seed)) as world:
        lock, condition, log = runtime.lock(), runtime.condition(), []

        def work(name: str) -> None:
            for i in range(20):
                with lock:
                    log.append(name)
                    failpoint("test.inside")
                if i % 5 == 0:
                    runtime.sleep(0.001)
                with condition:
                    condition.wait(0.01)
                    condition.notify_all()
            runtime.each(world.tell, [runtime.new_id(), str(runtime.now_ms())], at_once=2)

        for process in (world.process("a"), world.process("b")):
            for name in "xyz":
                process.spawn(lambda name=name: work(name), name)  # type: ignore[misc]
        world.run()
    return "\n".join([world.course(), "".join(log), *world.trace()])


if __name__ == "__main__":
    print(course(int(sys.argv[1])))
