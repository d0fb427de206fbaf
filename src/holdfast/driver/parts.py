"""What a running pipeline is put together from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.checkpoint.coordinator import Coordinator
from holdfast.checkpoint.ledger import Ledger
from holdfast.driver.ending import InputEnd
from holdfast.driver.engine import Engine
from holdfast.driver.epoch import EpochLoop
from holdfast.driver.options import Options
from holdfast.driver.scratch import ScratchReader

if TYPE_CHECKING:
    from holdfast.driver.background import BackgroundJobs
    from holdfast.driver.cluster import ClusterSite

__all__ = ["QueryParts"]


@dataclass(kw_only=True)
class QueryParts:
    """What a query is put together from; :mod:`holdfast.driver.start` does that."""

    options: Options
    ledger: Ledger
    coordinator: Coordinator
    loop: EpochLoop
    scratch: ScratchReader
    jobs: BackgroundJobs
    close: Callable[[], None]
    now_ms: Callable[[], int]
    engine: Engine
    cluster: ClusterSite | None
    """The hosts, if there are several."""
    input_end: InputEnd
    """Whether its input has ended."""
