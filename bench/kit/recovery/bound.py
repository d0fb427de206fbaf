"""What bounds the first epoch of a restore, from what a host can read per second.

An epoch that touches cold keys needs all hashes (which of a run's rows are meant?) and then the keys of
those rows, to be sure. Hashing scatters cold keys evenly. What lies between two of them is read along,
or it costs another read.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np

from bench.kit.recovery.reads import SmallReads
from bench.kit.recovery.records import Bound
from bench.kit.recovery.text import Text, touched
from bench.lab import Lab

__all__ = ["bound", "small_reads"]

_ROOT = Path(__file__).resolve().parents[3]
_WANTED = 0.5
_RECENT = 0.1  # so much of the text is in runs that are newest and small, and cost nothing here


def small_reads(lab: Lab, host: str, path: str, column: str) -> SmallReads:
    """What a host of the lab can read of a stored run in small pieces."""
    command = [sys.executable, "-m", "bench.kit.recovery.reads", lab.hdfs_url, path, column]
    with lab.run(host, command, cwd=_ROOT, stdout=subprocess.PIPE) as reading:
        said, _ = reading.communicate()
    if reading.returncode:
        raise RuntimeError(f"reading small pieces on {host} ended with {reading.returncode}")
    return msgspec.json.decode(said, type=SmallReads)


def bound(
    text: Text, share: float, stored_bytes: int, bytes_per_second: float, reads: SmallReads
) -> Bound:
    """The least time for an epoch on a share of the keys, over that of reading everything.

    Nothing but reading is counted, and single rows can be read: both flatter it. ``reads_needed`` is the
    rate of reads that would make it half.

    >>> small = bound(Text(10), 0.01, 7_000_000, 25e6, SmallReads(per_second=3_000, key_share=0.75))
    >>> small.least_ratio > 0.5, small.reads_needed > 2 * 3_000
    (True, True)
    """
    rows = np.setdiff1d(touched(text.keys, share), text.recent(_RECENT))
    places = np.sort(np.random.default_rng(1).choice(text.keys, len(rows), replace=False))
    # To leave out the largest gaps spares the most bytes per read.
    gaps = np.sort(np.diff(places) - 1)[::-1]
    spared = np.concatenate([[0], np.cumsum(gaps)])
    keys_read = (places[-1] + 1 - places[0] - spared) / text.keys
    reads_made = np.arange(1, len(keys_read) + 1)

    everything_s = stored_bytes / bytes_per_second
    others = 1 - reads.key_share
    by_bytes = reads.key_share * keys_read
    by_reads = reads_made / reads.per_second / everything_s
    enough = reads_made[others + by_bytes <= _WANTED]
    needed = enough[0] / ((_WANTED - others) * everything_s) if len(enough) else None
    return Bound(
        megabytes=text.megabytes,
        cold_keys=len(rows),
        key_share=reads.key_share,
        reads_per_second=reads.per_second,
        least_ratio=round(min(1.0, float((others + np.maximum(by_bytes, by_reads)).min())), 3),
        reads_needed=None if needed is None else float(needed),
    )
