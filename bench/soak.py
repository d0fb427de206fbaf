"""``./run soak``: a pipeline on a lab under random faults, for as long as one likes; needs root.

It is the code of tests/lab/test_cluster_faults.py, for longer and with more hosts down at a time.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.lab import Lab
from bench.services.daemon import ServiceError
from holdfast.errors import HoldfastError
from tests.lab.cluster_faults import DISK, run_faults
from tests.lab.cluster_support import Cluster, DriverEndedError

__all__ = ["main"]

_FOLDER = Path(__file__).resolve().parent.parent / "out" / "soak"


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak; 0 if all was right."""
    options = _parser().parse_args(arguments)
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    folder: Path = options.folder
    shutil.rmtree(folder, ignore_errors=True)
    try:
        with Lab(
            folder / "lab", hosts=options.hosts, hdfs=True, cores=1, memory="512m", disk_size=DISK
        ) as lab:
            cluster = Cluster(lab, folder / "work", checkpoint_interval=2.0, keep_last=3, flow=True)
            outcome = run_faults(cluster, options.minutes * 60, seed, hosts_down=options.hosts_down)
    except (AssertionError, DriverEndedError, HoldfastError, ServiceError) as error:
        print(f"./run soak: wrong with --seed {seed}: {error}", file=sys.stderr)
        print(f"input, output and logs are in {folder}", file=sys.stderr)
        return 1
    for words in outcome.failures:
        print(f"a driver was started again after: {words}")
    print("output and state equal batch; no run was lost, none leaked; verify passes")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./run soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="of faults (60)")
    parser.add_argument("--seed", type=int, help="of the choice of faults; printed if not given")
    parser.add_argument("--hosts", type=int, default=3, help="that compute and store (3)")
    parser.add_argument("--hosts-down", type=int, default=2, help="at most at a time (2)")
    parser.add_argument("--folder", type=Path, default=_FOLDER, help="for everything (out/soak)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
