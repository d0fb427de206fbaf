"""The simulator finds faults: each mutant by a seed that is known to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError
from holdfast.testing.simulation.errors import WorldError
from holdfast.testing.simulation.seeds import run_seed
from tests.testing.simulation import test_scenarios as scenarios
from tests.testing.simulation.mutants import MUTANTS
from tests.testing.simulation.searching import found

_RENEW = (
    "the simulator has changed, maybe: ./run simulate --mutants --search 2000 looks for other seeds"
)


# What takes a rare course: played, not drawn.
_PLAYED: dict[str, Callable[[Path], None]] = {
    "hands_over_without_a_limit": scenarios.test_a_handover_that_meets_a_loss_lets_epochs_end,
    "publishes_again_what_readers_took_away": scenarios.test_an_epoch_that_readers_took_away_before_it_was_noted_is_not_published_again,
    "reads_positions_without_a_checksum": partial(
        scenarios.test_a_damaged_newest_entry_is_refused_and_an_older_one_goes_on_under_new_numbers,
        "blob",
    ),
    "recovers_on_the_timeline_that_was_left": scenarios.test_an_entry_that_was_asked_for_is_gone_back_to_if_state_is_lost_before_the_first_checkpoint,
    "stops_as_if_committed": scenarios.test_stop_says_that_the_last_checkpoint_failed,
    "stores_layers_in_part": partial(
        scenarios.test_a_layer_that_is_stored_in_part_is_stored_to_the_end, 1
    ),
    "takes_what_is_readable_for_all_there_was": partial(
        scenarios.test_a_damaged_newest_entry_is_refused_and_an_older_one_goes_on_under_new_numbers,
        "entry",
    ),
    "waits_for_an_entry_that_a_loss_prevents": scenarios.test_an_epoch_that_waits_for_its_entry_ends_when_state_is_lost,
}
# Nobody has found these yet; whoever does takes them out of here.
_NOT_YET = {
    "deletes_local_files_an_epoch_early",
    "merges_what_is_being_stored",
    "recovers_from_anothers_claim",
    "takes_exists_for_another_drivers_entry",
    "takes_unreadable_entries_for_empty",
}


def test_every_other_mutant_was_found_by_some_seed() -> None:
    assert set(MUTANTS) - set(found()) - set(_PLAYED) <= _NOT_YET, _RENEW


@pytest.mark.parametrize("name", sorted(_PLAYED))
def test_a_mutant_is_found_where_its_course_is_played(name: str, tmp_path: Path) -> None:
    with MUTANTS[name].put_in(), pytest.raises((AssertionError, WorldError, HoldfastError)):
        _PLAYED[name](tmp_path)


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
