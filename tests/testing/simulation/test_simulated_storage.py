from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from holdfast import runtime
from holdfast.errors import StorageError
from holdfast.storage import NotFoundError, Storage, open_storage
from holdfast.testing import StorageTests
from holdfast.testing.simulation import (
    Process,
    SimulatedStorage,
    SimulatedStore,
    World,
    WorldError,
    simulating,
)

_REAL_THREADS = (
    "test_of_many_threads_one_creates",
    "test_of_many_processes_one_creates",
    "test_an_object_is_visible_only_when_complete",
)
_TESTS = [name for name in dir(StorageTests) if name.startswith("test_")]


class TestSimulatedStorage(StorageTests):
    crosses_processes = False

    @pytest.fixture
    def storage(self) -> Iterator[SimulatedStorage]:
        with simulating(World(1, began_ms=int(time.time() * 1000))) as world:
            yield SimulatedStore(world).client()


@pytest.mark.parametrize("name", [name for name in _TESTS if name not in _REAL_THREADS])
def test_a_thread_of_a_world_finds_storage_as_it_should_be(name: str) -> None:
    with simulating(World(name, began_ms=int(time.time() * 1000))) as world:
        store = SimulatedStore(world)
        store.faults.off()
        storage = store.client()
        test = getattr(StorageTests(), name)
        world.process("a").spawn(lambda: test(storage), "main")
        world.run()


@contextmanager
def a_store() -> Iterator[tuple[World, SimulatedStore, Process]]:
    """A storage in which nothing goes wrong by chance, and who asks."""
    with simulating(World(1)) as world:
        store = SimulatedStore(world)
        store.faults.off()
        yield world, store, world.process("a")


def tried(process: Process, act: Callable[[], object]) -> tuple[object, float]:
    """What a call comes to in a thread of the process, and how long that takes."""

    found: list[object] = []

    def work() -> float:
        began = runtime.monotonic()
        try:
            found.append(act())
        except Exception as error:
            found.append(error)
        return runtime.monotonic() - began

    thread = process.spawn(work, "main")
    assert process.world.run(lambda: thread.ended, within_s=10_000)
    assert isinstance(thread.value, float)
    return found[0], thread.value


def test_what_fails_has_not_been_done() -> None:
    with a_store() as (_, store, process):
        store.faults.plan("fails", "put")
        storage = store.client()
        error, _ = tried(process, lambda: storage.put("a", b"x"))
        assert isinstance(error, StorageError)
        assert "a" not in store.objects
        tried(process, lambda: storage.put("a", b"x"))
        assert store.objects["a"][0] == b"x"


def test_an_answer_can_be_lost() -> None:
    with a_store() as (_, store, process):
        store.faults.plan("lost", "put_if_absent", "log/*")
        storage = store.client()
        assert tried(process, lambda: storage.put_if_absent("a", b"x"))[0] is True
        error, _ = tried(process, lambda: storage.put_if_absent("log/1", b"x"))
        assert isinstance(error, StorageError)
        assert tried(process, lambda: storage.put_if_absent("log/1", b"y"))[0] is False


def test_a_request_may_be_repeated_on_the_way() -> None:
    with a_store() as (_, store, process):
        store.faults.plan("repeated")
        storage = store.client()
        assert tried(process, lambda: storage.put_if_absent("log/1", b"x"))[0] is False
        assert store.objects["log/1"][0] == b"x"


@pytest.mark.parametrize("there_before", [False, True])
def test_a_conditional_write_is_done_late_by_a_process_that_is_dead(there_before: bool) -> None:
    with a_store() as (world, store, process):
        store.faults.plan("later")
        storage = store.client()
        error, _ = tried(process, lambda: storage.put_if_absent("log/1", b"late"))
        assert isinstance(error, StorageError)
        assert not store.objects
        process.kill()
        if there_before:
            store.client().put("log/1", b"another")
        world.run(within_s=1000)
        assert store.objects["log/1"][0] == (b"another" if there_before else b"late")
        assert store.history[-1].process == ("outside" if there_before else "a")


def test_a_delete_may_be_late_or_partial() -> None:
    names = [f"runs/{i}" for i in range(20)]
    with a_store() as (world, store, process):
        storage = store.client()
        for name in names:
            storage.put(name, b"x")
        store.faults.plan("fails", "delete")
        assert isinstance(tried(process, lambda: storage.delete(names))[0], StorageError)
        left = len(store.objects)
        assert 0 < left < 20
        store.faults.plan("later", "delete")
        tried(process, lambda: storage.delete(names))
        assert store.objects
        world.run(within_s=1000)
        assert not store.objects


def test_a_call_may_be_slow() -> None:
    with a_store() as (_, store, process):
        store.faults.plan("slow")
        _, took_s = tried(process, lambda: store.client().put("a", b"x"))
        assert 2 < took_s < 300
        _, took_s = tried(process, lambda: store.client().put("a", b"x"))
        assert took_s < 2


def test_what_is_full_is_so_for_a_while_and_things_can_be_deleted() -> None:
    with a_store() as (world, store, process):
        storage = store.client()
        storage.put("a", b"x")
        store.faults.plan("full")
        for _ in range(3):
            error, _ = tried(process, lambda: storage.put("b", b"x"))
            assert "no space is left" in str(error)
        assert tried(process, lambda: storage.delete(["a"]))[0] is None
        assert not store.objects
        world.run(world.now + 300)
        assert tried(process, lambda: storage.put("b", b"x"))[0] is None


def test_an_outage_concerns_all_calls_and_ends() -> None:
    with a_store() as (world, store, process):
        storage = store.client()
        store.faults.plan("outage", "list")
        for act in (storage.list, lambda: storage.get("a"), lambda: storage.delete(["a"])):
            assert isinstance(tried(process, act)[0], StorageError)
        world.run(world.now + 300)
        assert isinstance(tried(process, lambda: storage.get("a"))[0], NotFoundError)


def test_bits_of_an_answer_may_be_wrong_while_what_is_stored_is_right() -> None:
    data = bytes(range(256))
    with a_store() as (_, store, process):
        storage = store.client()
        storage.put("a", data)
        store.faults.plan("flipped", at=1)
        store.faults.plan("flipped", at=2)
        whole, _ = tried(process, lambda: storage.get("a"))
        part, _ = tried(process, lambda: storage.reader("a")(10, 5))
        assert whole != data
        assert part != data[10:15]
        assert len(bytes(whole)) == 256  # type: ignore[call-overload]
        assert tried(process, lambda: storage.get("a"))[0] == data


def test_damage_at_rest_stays_and_is_known() -> None:
    with a_store() as (_, store, process):
        storage = store.client()
        for name in ("runs/a", "runs/b", "log/c"):
            storage.put(name, b"right")
        damaged = store.damage(prefix="runs/")
        assert damaged is not None
        assert list(store.damaged) == [damaged]
        assert tried(process, lambda: storage.get(damaged))[0] != b"right"
        storage.put(damaged, b"right")
        assert not store.damaged
        assert storage.get(damaged) == b"right"


def test_who_is_cut_off_gets_no_answer_until_healed() -> None:
    with a_store() as (world, store, process):
        storage, other = store.client(), world.process("other")
        store.cut_off(process)
        error, took_s = tried(process, lambda: storage.put("a", b"x"))
        assert isinstance(error, StorageError)
        assert took_s > 29
        assert tried(other, lambda: storage.put("b", b"x"))[0] is None
        store.heal(process)
        assert tried(process, lambda: storage.put("a", b"x"))[0] is None


def test_who_is_cut_off_meanwhile_does_not_learn_that_it_was_done() -> None:
    with a_store() as (world, store, process):
        thread = process.spawn(lambda: tried_in_place(lambda: store.client().put("a", b"x")), "m")
        world.run(lambda: "a" in store.objects)
        store.cut_off(process)
        world.run()
        assert isinstance(thread.value, StorageError)


def tried_in_place(act: Callable[[], object]) -> object:
    try:
        return act()
    except StorageError as error:
        return error


def test_a_listing_may_break_off() -> None:
    broken_off = set()
    for seed in range(20):
        with simulating(World(seed)) as world:
            store = SimulatedStore(world)
            store.faults.off()
            for name in "abc":
                store.client().put(name, b"x")
            store.faults.plan("lost", "list")
            seen: list[str] = []

            def look(storage: Storage, seen: list[str]) -> None:
                with pytest.raises(StorageError):
                    seen.extend(info.name for info in storage.list())

            storage = store.client()
            world.process("a").spawn(lambda s=storage, n=seen: look(s, n), "m")  # type: ignore[misc]
            world.run()
            broken_off.add("".join(seen))
    assert broken_off == {"", "a", "ab", "abc"}


def test_a_listing_is_of_one_moment() -> None:
    with a_store() as (_, store, process):
        storage = store.client()
        storage.put("a", b"x")

        def look() -> list[str]:
            listing = storage.list()
            storage.put("b", b"x")
            return [info.name for info in listing]

        assert tried(process, look)[0] == ["a"]


@pytest.mark.parametrize("folder", ["log", "runs"])
@pytest.mark.parametrize("inside", [False, True])
def test_nobody_may_replace_an_entry_or_a_run(folder: str, inside: bool) -> None:
    with a_store() as (world, store, process):
        storage = store.client()

        def replace() -> None:
            try:
                storage.put(f"{folder}/1", b"y")
            except Exception as error:
                world.tell(f"swallows {error}")

        storage.put(f"{folder}/1", b"x")
        storage.put(f"{folder}/1", b"x")
        if inside:
            process.spawn(replace, "main")
            with pytest.raises(WorldError, match="replaces"):
                world.run()
        else:
            with pytest.raises(WorldError, match="replaces"):
                storage.put(f"{folder}/1", b"y")


def test_a_request_of_who_is_killed_may_still_be_done() -> None:
    done = set()
    for seed in range(20):
        with simulating(World(seed)) as world:
            store, process = SimulatedStore(world), world.process("a")
            store.faults.off()
            storage = store.client()
            process.spawn(lambda s=storage: s.put("a", b"x"), "main")  # type: ignore[misc]
            world.run(lambda s=store: s.faults.calls == 1)  # type: ignore[misc]
            process.kill()
            world.run()
            done.add("a" in store.objects)
    assert done == {False, True}


def test_who_cleans_up_after_his_death_changes_nothing() -> None:
    with a_store() as (world, store, process):
        storage = store.client()

        def work() -> None:
            try:
                runtime.sleep(10)
            finally:
                storage.put("too-late", b"x")

        process.spawn(work, "main")
        world.run(within_s=1)
        process.kill()
        world.run()
    assert not store.objects
    assert not store.history


def test_history_tells_who_did_what() -> None:
    with a_store() as (_, store, process):
        storage = store.client()
        tried(process, lambda: storage.put("a", b"x"))
        storage.delete(["a", "b"])
        assert [(c.process, c.verb, c.name, c.data) for c in store.history] == [
            ("a", "put", "a", b"x"),
            ("outside", "delete", "a", None),
        ]


def test_hosts_keep_objects() -> None:
    with simulating(World(1)) as world:
        store = SimulatedStore(world, hosts=["h1", "h2", "h3"])
        storage = store.client()
        storage.put("a", b"x")
        assert len(set(storage.locations("a"))) == 2


def test_a_storage_that_is_sent_to_another_process_is_that_process() -> None:
    with a_store() as (_, store, process):
        sent = pickle.dumps(store.client())
        tried(process, lambda: pickle.loads(sent).put("a", b"x"))
        tried(process, lambda: open_storage("simulated://ck").put("b", b"x"))
        assert [change.process for change in store.history] == ["a", "a"]


def much(only: frozenset[int] | None = None) -> tuple[list[str], list[str]]:
    """Many calls under all faults: what strikes, and what happens."""
    with simulating(World(7)) as world:
        store = SimulatedStore(world)
        for kind in ("fails", "lost", "later", "slow", "flipped", "full", "outage"):
            setattr(store.faults.rates, kind, 0.01)
        store.faults.only = only
        storage = store.client()

        def work(name: str) -> None:
            for i in range(100):
                for act in (
                    lambda i=i: storage.put(f"{name}/{i}", b"x" * i),
                    lambda i=i: storage.get(f"{name}/{i}"),
                    lambda: storage.delete([f"{name}/{j}" for j in range(5)]),
                ):
                    tried_in_place(lambda act=act: found(act))  # type: ignore[misc]

        for name in "ab":
            world.process(name).spawn(lambda name=name: work(name), "main")  # type: ignore[misc]
        world.run()
        return [f"{fault.number} {fault.kind}" for fault in store.faults.struck], world.trace()


def found(act: Callable[[], object]) -> object:
    try:
        return act()
    except NotFoundError:
        return None


def test_faults_are_the_same_for_the_same_seed() -> None:
    assert much() == much()


def test_single_faults_can_be_left_out() -> None:
    struck, _ = much()
    assert len(struck) > 10
    first = int(struck[0].split()[0])
    assert much(frozenset([first]))[0] == [struck[0]]
    assert much(frozenset())[0] == []
