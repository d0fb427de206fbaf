"""Run a process of a user's under faults, without a cluster, and say what is wrong with it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from random import Random
from typing import TYPE_CHECKING, Any

from holdfast.choices import TimeMode
from holdfast.durations import Duration, parse_ms
from holdfast.errors import ConfigurationError, InputError
from holdfast.operators.process.unkeyed import Process
from holdfast.testing.elsewhere import ElsewhereError, Helper, to_send
from holdfast.testing.given import check_columns, check_event_time, names_of
from holdfast.types import parse_schema

if TYPE_CHECKING:
    from holdfast.testing.trial_program import Trial
    from holdfast.testing.trial_run import Ran, Result

__all__ = ["Simulated", "simulate"]

_MOST_S = 120.0
_MOST_STORY = 20
_HASH_SEEDS = (1, 2)


@dataclass(frozen=True)
class Simulated:
    """What happened in the runs of :func:`simulate`; ``print`` shows it as a table.

    >>> print(Simulated((0, 1), epochs=14, checkpoints=9, restarts=3, faults={"driver killed": 2}))
    seeds               2
    epochs             14
    checkpoints         9
    restarts            3
    driver killed       2
    """

    seeds: tuple[int, ...]
    epochs: int
    """Epochs that count, of all seeds."""
    checkpoints: int
    restarts: int
    """Drivers that started after the first of their seed."""
    faults: Mapping[str, int]
    """How often each kind of fault struck."""

    def __str__(self) -> str:
        counts = {
            "seeds": len(self.seeds),
            "epochs": self.epochs,
            "checkpoints": self.checkpoints,
            "restarts": self.restarts,
            **dict(sorted(self.faults.items())),
        }
        width = max(map(len, counts))
        return "\n".join(f"{name:{width}}  {count:6}" for name, count in counts.items())


def simulate(
    process: Any,
    *,
    columns: object,
    keys: str | Sequence[str] = (),
    rows: Iterable[Any] | Callable[[Random], Iterable[Any]],
    seeds: int | Iterable[int] = 50,
    event_time: str | None = None,
    watermark_delay: Duration = 0,
    allowed_lateness: Duration = 0,
    output: object = None,
    time_mode: TimeMode = "None",
    pandas: bool = False,
    processes: int | None = None,
) -> Simulated:
    """Run a process under faults, without Spark; ``AssertionError`` if anything comes out wrong.

    Each seed is a run of a pipeline with real tasks, checkpoints and recovery in a simulated
    cluster, where drivers, executors and hosts die or are cut off, a second driver starts, storage
    fails and epochs are repeated. What was put out, and the state in the end, must equal what the
    same rows in the same epochs come to in peace: so code that reads a clock, draws chance, goes by
    the order of a set or remembers something outside its state is found, and code that raises.

    ``rows`` are dicts, or tuples in the order of ``columns``, or a function that makes them with a
    ``random.Random``; a seed cuts them into epochs. ``process``, ``columns``, ``keys``,
    ``event_time``, ``output``, ``time_mode`` and ``pandas`` are as for :class:`ProcessorTester`; a
    ``BatchProcess`` and a ``Process`` (which has no ``keys``) are taken, too. ``watermark_delay`` is
    the ``delay`` of ``with_watermark``, ``allowed_lateness`` what it has under that name. ``seeds`` is how many, or which; they run in as many
    ``processes`` as there are cores, and a single one in this process, where a debugger sees it
    (and no pipeline may run meanwhile).

    >>> import holdfast as hf
    >>> class Total(hf.KeyedProcess):
    ...     output = "user string, total double"
    ...     total = hf.ValueState("double", default=0.0)
    ...
    ...     def process(self, key, rows, ctx):
    ...         self.total.value += sum(row.price for row in rows)
    ...         yield key.user, self.total.value
    >>> def bought(random):
    ...     return [(random.choice("abc"), random.random()) for _ in range(40)]
    >>> done = hf.testing.simulate(
    ...     Total(), columns="user string, price double", keys="user", rows=bought, seeds=3
    ... )
    >>> len(done.seeds), done.epochs > 3
    (3, True)
    """
    try:
        from holdfast.testing.trial_program import Trial, rows_for
    except ModuleNotFoundError as error:
        if error.name != "greenlet":
            raise
        raise ConfigurationError(
            "hf.testing.simulate needs greenlet, which is not installed",
            hint="pip install 'holdfast[simulate]'",
        ) from error

    schema = parse_schema(columns)
    unkeyed = isinstance(process, Process)
    if unkeyed and keys:
        raise InputError(
            f"{type(process).__name__} is a process without keys, and keys={keys!r}",
            hint="leave keys away, or derive it from hf.KeyedProcess",
        )
    named = () if unkeyed else tuple(names_of("keys", keys))
    check_columns("rows", named, schema)
    if event_time is not None:
        check_event_time(event_time, schema)
    trial = Trial(
        process,
        schema,
        named,
        rows if callable(rows) else list(rows),
        event_time,
        parse_ms(watermark_delay, "watermark_delay"),
        parse_ms(allowed_lateness, "allowed_lateness"),
        output,
        time_mode,
        pandas,
    )
    trial.check()
    chosen = _chosen(seeds)
    if processes is not None and (not _is_number(processes) or processes < 1):
        raise InputError(
            f"processes={processes!r} run nothing", hint="give a number from 1, or leave it away"
        )
    if not rows_for(trial, str(chosen[0])).equals(rows_for(trial, str(chosen[0]))):
        raise InputError(
            "rows makes others each time it is called",
            hint="take all chance from the random.Random that it is given",
        )
    return _run_all(trial, chosen, processes or os.cpu_count() or 1)


def _chosen(seeds: Any) -> tuple[int, ...]:
    chosen: tuple[Any, ...] = ()
    if _is_number(seeds):
        chosen = tuple(range(seeds))
    elif isinstance(seeds, Iterable):
        chosen = tuple(seeds)
    if not chosen or not all(map(_is_number, chosen)):
        raise InputError(f"seeds={seeds!r} are none", hint="give how many, or a list of them")
    return chosen


def _is_number(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool)


def _run_all(trial: Trial, seeds: tuple[int, ...], processes: int) -> Simulated:
    about = to_send(trial, trial.process)
    if len(seeds) == 1:
        with _lane(about, here=trial) as lane:
            return _summed([lane.run(seeds[0])])
    pool: SimpleQueue[_Lane] = SimpleQueue()

    def run(seed: int) -> Ran:
        lane = pool.get()
        try:
            return lane.run(seed)
        finally:
            pool.put(lane)

    lanes = [_Lane(about) for _ in range(min(processes, len(seeds)))]
    try:
        for lane in lanes:
            pool.put(lane)
        with ThreadPoolExecutor(len(lanes)) as threads:
            futures = [threads.submit(run, seed) for seed in seeds]
            try:
                return _summed([future.result() for future in futures])
            finally:
                threads.shutdown(wait=True, cancel_futures=True)
    finally:
        for lane in lanes:
            lane.close()


def _summed(runs: Sequence[Ran]) -> Simulated:
    faults: Counter[str] = Counter()
    for ran in runs:
        faults.update(ran.faults)
    return Simulated(
        tuple(ran.seed for ran in runs),
        epochs=sum(len(ran.records) for ran in runs),
        checkpoints=sum(ran.checkpoints for ran in runs),
        restarts=sum(ran.drivers - 1 for ran in runs),
        faults=dict(faults),
    )


@contextmanager
def _lane(about: bytes, here: Trial) -> Iterator[_Lane]:
    lane = _Lane(about, here)
    try:
        yield lane
    finally:
        lane.close()


class _Lane:
    """Runs one seed after the other: under faults in one Python, in peace in another."""

    def __init__(self, about: bytes, here: Trial | None = None) -> None:
        """``here``: run it under faults in this very process."""
        self._about = about
        self._here = here
        self._helpers: dict[int, Helper] = {}

    def run(self, seed: int) -> Ran:
        """Run a seed; ``AssertionError`` if anything is wrong."""
        from holdfast.testing.trial_run import Ran, peace_of, run_seed

        first, second = _HASH_SEEDS
        try:
            if self._here is not None:
                ran = run_seed(self._here, seed)
            else:
                ran = self._ask(first, run_seed, seed)
        except ElsewhereError as error:
            ran = Ran(seed, wrong=f"{error}\n{error.where}")
        if ran.raised is not None:
            raise _failure(ran, f"The pipeline fails, because {ran.raised}")
        if ran.wrong is not None:
            raise _failure(ran, f"What must always hold does not:\n{ran.wrong}")
        in_peace = seed, ran.pieces, ran.records
        try:
            peace = self._ask(second, peace_of, *in_peace)
            together = self._ask(second, peace_of, *in_peace, False)
            found = difference(ran.result, peace) or difference(together, peace)
            if found is None:
                return ran
            why = self._why(peace, together, in_peace)
        except ElsewhereError as error:
            found, why = f"In peace it fails: {error}\n{error.where}", ""
        raise _failure(ran, f"{found}\n{why}".rstrip())

    def _why(self, peace: Result, together: Result, in_peace: tuple[Any, ...]) -> str:
        """What makes the difference: whatever makes one in peace as well."""
        from holdfast.testing.trial_run import peace_of

        first, second = _HASH_SEEDS
        if difference(peace, self._ask(second, peace_of, *in_peace)):
            return _CLOCK
        if difference(peace, self._ask(first, peace_of, *in_peace)):
            return _ORDER
        if difference(together, peace):
            return _REMEMBERED
        return _UNKNOWN

    def _ask(self, hash_seed: int, work: Callable[..., Any], *arguments: Any) -> Any:
        helper = self._helpers.get(hash_seed)
        if helper is None or helper.closed:
            self._helpers[hash_seed] = Helper(hash_seed, self._about)
        return self._helpers[hash_seed].ask(work, *arguments, within_s=_MOST_S)

    def close(self) -> None:
        """End its helpers."""
        for helper in self._helpers.values():
            helper.close()


_CLOCK = (
    "Also in peace it doesn't do the same twice: it reads a clock (time.time(), datetime.now()), or "
    "draws chance (random, uuid). Use ctx.processing_time, and chance that is seeded by the row."
)
_ORDER = (
    "Also in peace it does something else in a Python with another hash seed: it goes by the order of "
    "a set, or by hash(). Sort before you go through a set."
)
_REMEMBERED = (
    "In peace it does something else if tasks run in one process and are repeated: something outlives "
    "a task that isn't state, in an attribute, a class or a global variable. Make it a state."
)
_UNKNOWN = (
    "In peace it always does the same. It may go by which other keys it sees in an epoch or a task; "
    "if not, this is a fault of Holdfast's: please report it."
)


def difference(found: Result, peace: Result) -> str | None:
    """In words what is put out or kept otherwise than in peace."""
    (published, state), (published_in_peace, state_in_peace) = found, peace
    for sink in sorted({*published, *published_in_peace}):
        mine, right = published.get(sink, {}), published_in_peace.get(sink, {})
        for epoch in sorted({*mine, *right}):
            words = _rows_differ(mine.get(epoch, ()), right.get(epoch, ()))
            if words:
                what = "What is put out" if sink == "sink-0" else f"Side output {sink[5:]!r}"
                return f"{what} in epoch {epoch} is not what it is in peace:\n{words}"
    for table in sorted({*state, *state_in_peace}):
        words = _rows_differ(state.get(table, ()), state_in_peace.get(table, ()))
        if words:
            return f"The state in the end (table {table}) is not what it is in peace:\n{words}"
    return None


def _rows_differ(mine: Sequence[Any], right: Sequence[Any]) -> str:
    # By their words: one NaN is not the other.
    left, other = Counter(map(_words, mine)), Counter(map(_words, right))
    lines = [f"  here      {row}" for row in list((left - other).elements())[:3]]
    lines += [f"  in peace  {row}" for row in list((other - left).elements())[:3]]
    return "\n".join(lines)


def _words(row: Sequence[tuple[str, Any]]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in row)


def _failure(ran: Ran, what: str) -> AssertionError:
    told = ran.trace[-_MOST_STORY:]
    left_out = [f"    … ({len(ran.trace) - len(told)} lines before)"] if told != ran.trace else []
    return AssertionError(
        "\n".join(
            [
                f"seed {ran.seed}: {what}",
                f"Once more: seeds=[{ran.seed}]",
                "What happened:" if told else "",
                *left_out,
                *(f"    {line.strip()}" for line in told),
            ]
        ).rstrip()
    )
