from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from bench.kit.data import Dataset, epoch_ids, generate, link_input, zipf_ids


def test_an_epoch_depends_on_nothing_but_the_dataset_and_its_number() -> None:
    dataset = Dataset("d", keys=1000, rows=500, epochs=3)
    assert np.array_equal(epoch_ids(dataset, 1), epoch_ids(dataset, 1))
    assert not np.array_equal(epoch_ids(dataset, 1), epoch_ids(dataset, 2))


@pytest.mark.parametrize("keys", [10, 7])
def test_build_epochs_name_every_key_exactly_once(keys: int) -> None:
    dataset = Dataset("d", keys=keys, rows=5, epochs=1, build=3)
    ids = np.concatenate([epoch_ids(dataset, epoch) for epoch in range(3)])
    assert sorted(ids.tolist()) == list(range(keys))


def test_distinct_epochs_draw_no_key_twice() -> None:
    ids = epoch_ids(Dataset("d", keys=100, rows=90, epochs=1, distinct=True), 0)
    assert len(set(ids.tolist())) == 90


def test_zipf_draws_keys_by_the_weight_of_their_rank() -> None:
    ids = zipf_ids(np.random.default_rng(5), keys=50, exponent=1.1, size=200_000)
    drawn = np.bincount(ids, minlength=50) / len(ids)
    weights = np.arange(1, 51) ** -1.1
    assert ids.min() == 0
    assert ids.max() == 49
    assert np.allclose(drawn, weights / weights.sum(), atol=0.01)


def test_files_are_made_once_and_read_in_the_order_of_their_times(tmp_path: Path) -> None:
    dataset = Dataset("d", keys=20, rows=30, epochs=3)
    assert list(generate(dataset, tmp_path / "cache")) == [0, 1, 2]
    assert list(generate(dataset, tmp_path / "cache")) == []
    link_input(dataset, tmp_path / "cache", 2, tmp_path / "input")
    files = sorted((tmp_path / "input").iterdir(), key=lambda path: path.stat().st_mtime)
    assert [path.name for path in files] == ["00000.parquet", "00001.parquet"]
    words = pq.read_table(files[1])["word"].to_pylist()
    assert words == [f"word-{i}" for i in epoch_ids(dataset, 1)]


def test_a_generation_that_is_broken_off_leaves_nothing(tmp_path: Path) -> None:
    files = generate(Dataset("d", keys=20, rows=30, epochs=3), tmp_path)
    next(files)
    del files
    assert list(tmp_path.iterdir()) == []
