"""Faults at random for a while: results equal batch, no run is lost and none leaked."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from bench.lab import Lab
from tests.lab.cluster_faults import DISK, run_faults
from tests.lab.cluster_support import Cluster

pytestmark = [
    pytest.mark.slow,
    pytest.mark.soak,
    pytest.mark.timeout(1800),
    pytest.mark.usefixtures("lab_parts"),
]

SECONDS = 30.0


def test_random_faults_end_with_the_result_of_batch(tmp_path: Path) -> None:
    """``./run soak`` does the same for longer."""
    seed = int(os.environ.get("HOLDFAST_SEED", random.SystemRandom().randrange(10**6)))
    lab = Lab(tmp_path / "lab", hosts=3, hdfs=True, cores=1, memory="512m", disk_size=DISK)
    with lab:
        cluster = Cluster(lab, tmp_path / "work", checkpoint_interval=2.0, keep_last=3, flow=True)
        outcome = run_faults(cluster, SECONDS, seed)
    assert len(outcome.faults) >= 2
