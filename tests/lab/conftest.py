"""What a lab needs of the machine."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

Require = Callable[[str, str], None]


@pytest.fixture(scope="session")
def lab_parts(require: Require) -> None:
    """Root, and the programs and packages that a lab is made of."""
    if os.geteuid() != 0:
        # A program nobody has: skipped at home, a failure in continuous integration.
        require("the-lab-needs-root", "run the tests as root")
    require("ip", "apt-get install iproute2")
    require("java", "./run setup")
    require("hdfs_native", "./run setup")
