"""Input data, generated once and kept: Parquet files of (word string, amount double), a file an epoch."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

__all__ = ["Dataset", "epoch_ids", "generate", "link_input", "words", "zipf_ids"]

Ids = npt.NDArray[np.int64]

_FIRST_TIME = 1_700_000_000
# Spark gives each of its two readers whole row groups: eight of them share out evenly.
_ROW_GROUPS = 8
_FORMAT = 1


@dataclass(frozen=True)
class Dataset:
    """What to generate. Epoch i depends on nothing but these fields and i.

    ``build`` epochs come first in which every key appears exactly once, to make the state large
    before what is measured; then ``epochs`` epochs of ``rows`` rows draw keys at random, uniformly
    or (``zipf`` not 0) with weight rank^-zipf.
    """

    name: str
    keys: int
    rows: int
    epochs: int
    zipf: float = 0.0
    build: int = 0
    distinct: bool = False
    """Within an epoch no key is drawn twice."""
    seed: int = 1

    @property
    def folder(self) -> str:
        """A name for the cache that says everything the data depends on."""
        parts = [self.name, f"{self.keys}keys", f"{self.build}+{self.epochs}x{self.rows}rows"]
        parts += [f"zipf{self.zipf}"] if self.zipf else []
        parts += ["distinct"] if self.distinct else []
        return "-".join([*parts, f"seed{self.seed}", f"v{_FORMAT}"])

    @property
    def all_epochs(self) -> int:
        """Build epochs and measured ones."""
        return self.build + self.epochs


def zipf_ids(random: np.random.Generator, keys: int, exponent: float, size: int) -> Ids:
    """Draw ids 0 … keys-1 with weight (id+1)^-exponent."""
    cumulative = np.cumsum(np.arange(1, keys + 1, dtype=np.float64) ** -exponent)
    drawn: Ids = np.searchsorted(cumulative, random.random(size) * cumulative[-1])
    return np.minimum(drawn, keys - 1)


def epoch_ids(dataset: Dataset, epoch: int) -> Ids:
    """The key of every row of an epoch."""
    random = np.random.default_rng([dataset.seed, epoch])
    if epoch < dataset.build:
        cuts = [dataset.keys * i // dataset.build for i in (epoch, epoch + 1)]
        return random.permutation(np.arange(*cuts, dtype=np.int64))
    if dataset.zipf:
        return zipf_ids(random, dataset.keys, dataset.zipf, dataset.rows)
    if dataset.distinct:
        return random.choice(dataset.keys, dataset.rows, replace=False).astype(np.int64)
    return random.integers(0, dataset.keys, dataset.rows)


def epoch_amounts(dataset: Dataset, epoch: int, size: int) -> npt.NDArray[np.float64]:
    """The amount of every row of an epoch."""
    return np.random.default_rng([dataset.seed, epoch, 1]).random(size)


def words(ids: Ids) -> pa.Array:
    """The keys as the contenders see them.

    >>> words(np.array([7])).to_pylist()
    ['word-7']
    """
    return pc.binary_join_element_wise("word-", pa.array(ids).cast(pa.string()), "")


def generate(dataset: Dataset, cache: Path) -> Iterator[int]:
    """Write what the cache lacks; yields after every file, so that progress can be shown."""
    folder = cache / dataset.folder
    if folder.exists():
        return
    made = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    try:
        for epoch in range(dataset.all_epochs):
            ids = epoch_ids(dataset, epoch)
            amounts = epoch_amounts(dataset, epoch, len(ids))
            table = pa.table({"word": words(ids), "amount": amounts})
            path = made / _file(epoch)
            pq.write_table(table, path, row_group_size=max(1, -(-len(ids) // _ROW_GROUPS)))
            # Spark reads files in the order of their times.
            os.utime(path, (_FIRST_TIME + epoch, _FIRST_TIME + epoch))
            yield epoch
        made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def link_input(dataset: Dataset, cache: Path, epochs: int, folder: Path) -> None:
    """Make ``folder`` an input of the first ``epochs`` epochs, without copying."""
    folder.mkdir(parents=True)
    for epoch in range(epochs):
        (folder / _file(epoch)).hardlink_to(cache / dataset.folder / _file(epoch))


def _file(epoch: int) -> str:
    return f"{epoch:05d}.parquet"
