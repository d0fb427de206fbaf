"""All that Holdfast does with Spark's internals, by capability, and what of it this Spark has."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark import SparkContext

from holdfast.errors import ConfigurationError
from holdfast.spark.jvm.columns import COLUMNS, TIMES_IN_PLANS
from holdfast.spark.jvm.conversion import CONVERSION
from holdfast.spark.jvm.files import FILES
from holdfast.spark.jvm.frames import ARROW, FRAMES
from holdfast.spark.jvm.grouping import FIRST_ROWS, GROUPING
from holdfast.spark.jvm.hosts import HOSTS
from holdfast.spark.jvm.jobs import JOBS
from holdfast.spark.jvm.kept_plans import KEPT_PLANS
from holdfast.spark.jvm.lineage import LINEAGE
from holdfast.spark.jvm.locality import WAITING
from holdfast.spark.jvm.losses import LOSSES
from holdfast.spark.jvm.partitions import PARTITIONS, SOURCES_APART
from holdfast.spark.jvm.placed import PLACING
from holdfast.spark.jvm.prepared import PREPARED
from holdfast.spark.jvm.probing import Capability, why_off
from holdfast.spark.jvm.quiet import QUIET
from holdfast.spark.jvm.renaming import RENAMING
from holdfast.spark.jvm.scans import SCANS
from holdfast.spark.jvm.sqlparser import SQL
from holdfast.spark.jvm.streams import STREAMS, TICKS
from holdfast.spark.jvm.trees import PRUNING, TREES

__all__ = ["ALWAYS", "EVERY", "ON_CLUSTERS", "OPTIONAL", "check", "slower"]

ALWAYS = (
    TREES,
    LINEAGE,
    FRAMES,
    PREPARED,
    PARTITIONS,
    PLACING,
    COLUMNS,
    CONVERSION,
    STREAMS,
    JOBS,
    LOSSES,
)
"""What every pipeline needs."""
ON_CLUSTERS = (HOSTS, WAITING)
"""What a pipeline needs whose tasks run elsewhere."""
OPTIONAL = (
    *(SCANS, KEPT_PLANS, TIMES_IN_PLANS, PRUNING, GROUPING, FIRST_ROWS, SOURCES_APART, RENAMING),
    *(ARROW, QUIET),
)
"""What makes epochs faster, or errors shorter."""
EVERY = (*ALWAYS, *ON_CLUSTERS, TICKS, SQL, FILES, *OPTIONAL)


def check(context: SparkContext, needed: Iterable[Capability], what: str) -> None:
    """Raise ``ConfigurationError`` unless all that is needed is there; all else is looked up as well."""
    found = {capability: why_off(capability, context) for capability in EVERY}
    missing = [each for each in needed if found[each] is not None]
    if missing:
        said = "; ".join(f"for {each.name} {found[each]}" for each in missing)
        versions = " and ".join(dict.fromkeys(each.versions for each in missing))
        raise ConfigurationError(
            f"{what} can't run on this Spark: {said}",
            hint=f"nothing was changed; use a version of Spark that has it: {versions} do",
        )


def slower(context: SparkContext) -> tuple[str, ...]:
    """What is done the slow way on this Spark, and why."""
    off = ((each, why_off(each, context)) for each in OPTIONAL)
    return tuple(f"{each.name}: {why}; {each.slower}" for each, why in off if why is not None)
