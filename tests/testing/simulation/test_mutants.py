"""The simulator finds faults: each mutant by a seed that is known to."""

from __future__ import annotations

import pytest

from holdfast.testing.simulation.seeds import run_seed
from tests.testing.simulation.mutants import MUTANTS
from tests.testing.simulation.searching import found

_RENEW = (
    "the simulator has changed, maybe: ./run simulate --mutants --search 2000 looks for other seeds"
)


# Looked for with a few dozen to a few hundred seeds; whoever finds one takes it out of here.
_NOT_YET = {
    "deletes_local_files_an_epoch_early",
    "forgets_intents_at_once",
    "hands_over_without_a_limit",
    "installs_while_an_epoch_runs",
    "merges_what_is_being_stored",
    "publishes_again_what_readers_took_away",
    "reads_positions_without_a_checksum",
    "recovers_from_anothers_claim",
    "recovers_on_the_timeline_that_was_left",
    "stops_as_if_committed",
    "stores_layers_in_part",
    "sweeps_output_that_is_owed",
    "takes_exists_for_another_drivers_entry",
    "takes_unreadable_entries_for_empty",
    "takes_what_is_readable_for_all_there_was",
    "waits_for_an_entry_that_a_loss_prevents",
}


def test_every_other_mutant_was_found_by_some_seed() -> None:
    assert set(MUTANTS) - set(found()) <= _NOT_YET, _RENEW


@pytest.mark.parametrize("name", sorted(found()))
def test_a_mutant_is_found(name: str) -> None:
    failure = MUTANTS[name].found_by(found()[name].seed)
    assert failure is not None, f"{MUTANTS[name].says} Nobody notices; {_RENEW}"


@pytest.mark.parametrize(
    ("seed", "program"),
    sorted({(said.seed, MUTANTS[name].program) for name, said in found().items()}, key=str),
)
def test_without_it_nothing_is_found(seed: int, program: str | None) -> None:
    failure = run_seed(seed, program)
    assert failure is None, failure.error
