"""What a pipeline has come to: what it published and its state, compared with what its program's oracle says.

A start that goes back to an older entry begins another *timeline*; what the one before had published
stays so. All timelines together are what must have been published, each epoch of each once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from holdfast.checkpoint.entry import EpochRecord
from holdfast.checkpoint.reader import stored_tables
from holdfast.storage import Storage
from holdfast.testing.simulation.checks import History
from holdfast.testing.simulation.errors import WorldError
from holdfast.testing.simulation.inputs import Inputs
from holdfast.testing.simulation.outside import Outside
from holdfast.testing.simulation.program import Answer, Outcome, Program

__all__ = ["Outcomes"]


@dataclass(frozen=True)
class Outcomes:
    """What must have come of all timelines of a history."""

    history: History
    inputs: Inputs
    make: Callable[[], Program]

    def check(self, outside: Outside, storage: Storage) -> None:
        """Raise unless what was published, and the state of every checkpoint that counts, are right."""
        self._check_published(outside)
        if outside.halves:
            raise WorldError(f"of {sorted(outside.halves)[0]} only a half was ever published")
        program = self.make()
        for entry in self.history.retained:
            state = self._answer(self.history.chain(entry)).state
            if state is not None:
                views = stored_tables(entry, storage)
                tables = {
                    name: pa.concat_tables([view.schema.arrow.empty_table(), *view.scan()])
                    for name, view in views.items()
                }
                _same(program.state(tables), state, f"state of entry {entry.number}")

    def _answer(self, records: list[EpochRecord]) -> Answer:
        return self.make().answer(self.inputs.epochs(records))

    def _check_published(self, outside: Outside) -> None:
        program = self.make()
        published = program.outcome(
            {sink: sorted(epochs.items()) for sink, epochs in outside.tables.items()}
        )
        expected: Outcome = {sink: {} for sink in program.sinks}
        known: dict[int, EpochRecord] = {}
        optional: set[int] = set()
        for end in self.history.ends():
            records = self.history.chain(end)
            if end.number in self.history.left_behind:
                # Nobody could read what it owed.
                optional |= {record.epoch for record in records if record.epoch not in known}
            else:
                optional -= {record.epoch for record in records}
            for record in records:
                before = known.setdefault(record.epoch, record)
                if (before.offsets, before.rows) != (record.offsets, record.rows):
                    raise WorldError(
                        f"epoch {record.epoch} is in two timelines: {before}, {record}"
                    )
            for sink, rows in self._answer(records).rows.items():
                expected[sink].update(rows)
        for sink, rows in expected.items():
            found = published.get(sink, {})
            for epoch in optional - set(found):
                rows.pop(epoch, None)
            _same(found, rows, f"rows of {sink}")


def _same(found: object, expected: object, what: str) -> None:
    if found != expected:
        raise WorldError(f"{what}: {_difference(found, expected)}")


def _difference(found: object, expected: object) -> str:
    if isinstance(found, dict) and isinstance(expected, dict):
        for key in [*expected, *found]:
            if found.get(key) != expected.get(key):
                return f"{key!r}: {_difference(found.get(key), expected.get(key))}"
    return f"found {found!r}, expected {expected!r}"
