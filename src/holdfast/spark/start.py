"""Starting a pipeline on Spark."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from holdfast.driver.options import Options
from holdfast.driver.start import Start
from holdfast.spark.cluster.executors import send_holdfast
from holdfast.spark.cluster.fleet import SparkFleet
from holdfast.spark.engine import SparkEngine
from holdfast.spark.flow.graph import FlowGraph, build_graph
from holdfast.spark.jvm.capabilities import ALWAYS, ON_CLUSTERS, check
from holdfast.spark.jvm.hosts import is_cluster
from holdfast.spark.jvm.locality import waiting_for_hosts
from holdfast.spark.jvm.probing import Capability
from holdfast.spark.jvm.streams import TICKS
from holdfast.spark.jvm.trees import count_sources
from holdfast.spark.query import Query
from holdfast.spark.said import SaidPipeline
from holdfast.storage import Storage, open_storage

__all__ = ["SparkPlatform", "start_pipeline"]


def start_pipeline(pipeline: SaidPipeline, options: Options) -> Query:
    """Start or continue a pipeline."""
    start = Start(SparkPlatform(pipeline), options)
    start.check()
    return Query(start.begin(), start.begin)


def _needed(graph: FlowGraph, *, is_cluster: bool) -> Iterator[Capability]:
    """What of Spark's internals the pipeline can't do without."""
    yield from ALWAYS
    if is_cluster:
        yield from ON_CLUSTERS
    if graph.needs_ticks:
        yield TICKS
    yield from (node.plan.grouping for node in graph.nodes if node.plan.must_preaggregate)


class SparkPlatform:
    """A pipeline of streaming DataFrames and the Spark application that they are of."""

    def __init__(self, pipeline: SaidPipeline) -> None:
        self._pipeline = pipeline
        graph = build_graph(pipeline)
        self._spark = graph.sources[0].sparkSession
        self._context = self._spark.sparkContext
        self.is_cluster = is_cluster(self._context)
        check(self._context, _needed(graph, is_cluster=self.is_cluster), "the pipeline")
        self.scratch_root = Path(tempfile.gettempdir())

    def graph(self) -> FlowGraph:
        """The pipeline's operators in order, planned anew."""
        return build_graph(self._pipeline)

    def count_sources(self, graph: FlowGraph) -> int:
        """How many sources Spark will see."""
        return sum(count_sources(frame) for frame in graph.sources)

    def open_storage(self, url: str) -> Storage:
        """What the URL says."""
        return open_storage(url)

    def fleet(self) -> SparkFleet:
        """The application's executors."""
        return SparkFleet(self._spark)

    def prepare(self) -> None:
        """Send executors the package."""
        send_holdfast(self._context)

    def held(self) -> AbstractContextManager[None]:
        """On a cluster tasks wait for their hosts as long as pipelines run."""
        return waiting_for_hosts(self._context) if self.is_cluster else nullcontext()

    def engine(self, graph: Any, options: Options, fleet: Any, tag: str) -> SparkEngine:
        """Spark, for a claim."""
        return SparkEngine(graph, options, fleet, tag)
