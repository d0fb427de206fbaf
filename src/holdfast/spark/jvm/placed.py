"""Tells Spark where each task of a job should run, and each task where it does run.

Spark has no way to say "partition 3 belongs on h2" for a DataFrame. An RDD has one, preferred
locations, so a small subclass of RDD stands between two stages: it passes rows on and names a host
for each partition. It is compiled when first needed, by the compiler that Spark itself carries for
its generated code, and reaches executors as a jar.
"""

from __future__ import annotations

import logging
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import SparkContext, TaskContext
from pyspark.sql import DataFrame

from holdfast.driver.own_folders import until_exit
from holdfast.spark.jvm.prepared import frame_of, rdd_of

__all__ = ["Placer", "answers", "pruned", "task_host", "task_partition"]

logger = logging.getLogger("holdfast.spark")

_HOST = "holdfast.host"
_PARTITION = "holdfast.partition."
_CLASS = "io.holdfast.PlacedRDD"
# Janino has no generics and can't read SparkEnv's class file: hence raw types and method handles.
_SOURCE = """
package io.holdfast;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.Collections;
import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;

public class PlacedRDD extends RDD {
  private final String[] hosts;
  private final String key;

  public PlacedRDD(RDD parent, String[] hosts, String key) {
    super(parent, ClassTag$.MODULE$.Object());
    this.hosts = hosts;
    this.key = key;
  }

  public Partition[] getPartitions() {
    return this.firstParent(ClassTag$.MODULE$.Object()).partitions();
  }

  public Seq getPreferredLocations(Partition split) {
    String host = hosts.length == 0 ? null : hosts[split.index()];
    java.util.List named =
        host == null ? Collections.emptyList() : Collections.singletonList(host);
    return CollectionConverters.asScala(named).toSeq();
  }

  public Iterator compute(Partition split, TaskContext context) {
    context.getLocalProperties().setProperty("holdfast.host", here());
    String own = key + "." + context.taskAttemptId();
    context.getLocalProperties().setProperty(own, Integer.toString(split.index()));
    return this.firstParent(ClassTag$.MODULE$.Object()).iterator(split, context);
  }

  private static String here() {
    try {
      Class envClass = Class.forName("org.apache.spark.SparkEnv");
      MethodHandles.Lookup lookup = MethodHandles.publicLookup();
      Object env = call(lookup, envClass, null, "get", envClass);
      Class managerClass = Class.forName("org.apache.spark.storage.BlockManager");
      Object manager = call(lookup, envClass, env, "blockManager", managerClass);
      Class idClass = Class.forName("org.apache.spark.storage.BlockManagerId");
      Object id = call(lookup, managerClass, manager, "blockManagerId", idClass);
      return (String) call(lookup, idClass, id, "host", String.class);
    } catch (Throwable problem) {
      throw new RuntimeException("could not find out the executor's host", problem);
    }
  }

  private static Object call(
      MethodHandles.Lookup lookup, Class owner, Object object, String name, Class type)
      throws Throwable {
    MethodType signature = MethodType.methodType(type);
    if (object == null) {
      return lookup.findStatic(owner, name, signature).invokeWithArguments(new Object[0]);
    }
    return lookup.findVirtual(owner, name, signature).invokeWithArguments(new Object[] {object});
  }
}
"""

_BETWEEN = "io.holdfast.Between"
_BETWEEN_SOURCE = """
package io.holdfast;

public class Between extends scala.runtime.AbstractFunction1 implements java.io.Serializable {
  private final int first;
  private final int end;

  public Between(int first, int end) {
    this.first = first;
    this.end = end;
  }

  public Object apply(Object index) {
    int number = ((Integer) index).intValue();
    return Boolean.valueOf(first <= number && number < end);
  }
}
"""

_lock = threading.Lock()


class Placer:
    """Makes jobs that run where they are told; one per Spark application is enough."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._class = _classes(context)[_CLASS]

    def frame(self, frame: DataFrame, hosts: Sequence[str | None], stage: str = "0") -> DataFrame:
        """The same rows in the same partitions, the i-th on the i-th host (None: anywhere).

        Without hosts all may run anywhere. Tasks find the number of their partition under the
        name of the stage: with :func:`task_partition`.
        """
        rdd = self._placed(rdd_of(frame), hosts, stage)
        return frame_of(frame.sparkSession, rdd, frame._jdf.schema())

    def indexes(self, hosts: Sequence[str | None]) -> Any:
        """An RDD of one number per partition (its own index), each on its host."""
        from pyspark.core.rdd import RDD

        count = len(hosts)
        # A list, for a range is itself made by Python workers, and two of them in one task hang.
        numbers = self._context.parallelize(list(range(count)), count)
        java = self._placed(numbers._jrdd.rdd(), hosts, "0").toJavaRDD()
        return RDD(java, self._context, numbers._jrdd_deserializer)

    def _placed(self, rdd: Any, hosts: Sequence[str | None], stage: str) -> Any:
        gateway = self._context._gateway
        jvm = self._context._jvm
        assert gateway is not None
        assert jvm is not None
        names = gateway.new_array(jvm.java.lang.String, len(hosts))
        for index, host in enumerate(hosts):
            names[index] = host
        arguments = gateway.new_array(jvm.java.lang.Object, 3)
        arguments[0], arguments[1], arguments[2] = rdd, names, _PARTITION + stage
        return self._class.newInstance(arguments)


def answers(numbers: DataFrame, answer: Callable[[int], bytes]) -> list[bytes]:
    """What a function says of each number of a frame, where the frame's partitions run.

    By way of Arrow, as epochs do it: for tasks of another kind Spark has Python processes of another
    kind, which take seconds to start, and those of the epochs would not be there when they are needed.
    """

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                said = pa.array([answer(number)], pa.binary())
                yield pa.RecordBatch.from_pydict({"answer": said})

    return [bytes(row[0]) for row in numbers.mapInArrow(task, "answer binary").collect()]


def task_host() -> str | None:
    """In a task: Spark's name for the host it runs on; None in a job that was not placed."""
    context = TaskContext.get()
    return None if context is None else context.getLocalProperty(_HOST)


def task_partition(stage: str) -> int:
    """In a task: which partition of a stage it works on.

    Spark's own number counts the partitions of the job's stage, of which ours may be a part: where
    rows of several operators meet, or are written out at the end.
    """
    context = TaskContext.get()
    assert context is not None
    # Tasks in the driver's own process share their properties: each needs a name of its own.
    number = context.getLocalProperty(f"{_PARTITION}{stage}.{context.taskAttemptId()}")
    return context.partitionId() if number is None else int(number)


def pruned(frame: DataFrame, rdd: Any, first: int, end: int) -> DataFrame:
    """A DataFrame of some partitions of an RDD that has the rows of ``frame``."""
    context = frame.sparkSession.sparkContext
    jvm: Any = context._jvm
    gateway: Any = context._gateway
    arguments = gateway.new_array(jvm.java.lang.Object, 2)
    arguments[0], arguments[1] = first, end
    between = _classes(context)[_BETWEEN].newInstance(arguments)
    tag = getattr(getattr(jvm.scala.reflect, "ClassTag$"), "MODULE$").Object()
    part = jvm.org.apache.spark.rdd.PartitionPruningRDD(rdd, between, tag)
    return frame_of(frame.sparkSession, part, frame._jdf.schema())


def _classes(context: SparkContext) -> dict[str, Any]:
    """The constructors of our classes, compiled and sent to executors once per application."""
    with _lock:
        known: dict[str, Any] | None = getattr(context, "_holdfast_classes", None)
        if known is None:
            known = context._holdfast_classes = _compile(context)  # type: ignore[attr-defined]
        return known


def _compile(context: SparkContext) -> dict[str, Any]:
    jvm = context._jvm
    assert jvm is not None
    # Executors fetch it from the driver whenever one joins: it stays as long as the driver does.
    jar = until_exit("holdfast-jar-") / "holdfast-classes.jar"
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    constructors = {}
    with zipfile.ZipFile(jar, "w") as archive:
        for name, source in ((_CLASS, _SOURCE), (_BETWEEN, _BETWEEN_SOURCE)):
            compiler = jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(loader)
            compiler.cook(source)
            for compiled, code in compiler.getBytecodes().items():
                archive.writestr(compiled.replace(".", "/") + ".class", bytes(code))
            constructors[name] = compiler.getClassLoader().loadClass(name).getConstructors()[0]
    context._jsc.addJar(str(jar))
    return constructors
