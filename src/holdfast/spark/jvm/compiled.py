"""Classes of ours in the JVM, compiled when first needed by the compiler that Spark itself carries.

Spark compiles the code that it generates with Janino. Ours reaches executors as a jar.
"""

from __future__ import annotations

import threading
import zipfile
from typing import Any

from pyspark import SparkContext

from holdfast.driver.own_folders import until_exit
from holdfast.spark.jvm.gateway import array, java_class, java_context, jvm_of

__all__ = ["BETWEEN", "PLACED_RDD", "new", "only_here"]

PLACED_RDD = "io.holdfast.PlacedRDD"
"""An RDD whose partitions have hosts that they prefer: of an RDD, their names, and a property's name."""
BETWEEN = "io.holdfast.Between"
"""Whether a number is at least the first and less than the second."""
# Janino has no generics and can't read SparkEnv's class file: hence raw types and method handles.
_PLACED_RDD = """
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

_BETWEEN = """
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

_SOURCES = ((PLACED_RDD, _PLACED_RDD), (BETWEEN, _BETWEEN))
_lock = threading.Lock()


def new(context: SparkContext, name: str, *arguments: Any) -> Any:
    """A new object of one of our classes."""
    given = array(context, "java.lang.Object", arguments)
    return _classes(context)[name].newInstance(given)


def _classes(context: SparkContext) -> dict[str, Any]:
    """The constructors of our classes, compiled and sent to executors once per application."""
    with _lock:
        known: dict[str, Any] | None = getattr(context, "_holdfast_classes", None)
        if known is None:
            known = context._holdfast_classes = _compile(context)  # type: ignore[attr-defined]
        return known


def _compile(context: SparkContext) -> dict[str, Any]:
    # Executors fetch it from the driver whenever one joins: it stays as long as the driver does.
    jar = until_exit("holdfast-jar-") / "holdfast-classes.jar"
    constructors = {}
    with zipfile.ZipFile(jar, "w") as archive:
        for name, source in _SOURCES:
            compiler = _cooked(context, source)
            for compiled, code in compiler.getBytecodes().items():
                archive.writestr(compiled.replace(".", "/") + ".class", bytes(code))
            constructors[name] = _constructor(compiler, name)
    java_context(context).addJar(str(jar))
    return constructors


def only_here(context: SparkContext, name: str, source: str) -> Any:
    """An object of a class that is used in the driver alone, made without arguments."""
    made = _constructor(_cooked(context, source), name)
    return made.newInstance(array(context, "java.lang.Object", ()))


def _cooked(context: SparkContext, source: str) -> Any:
    jvm = jvm_of(context)
    compiler = java_class(jvm, "org.codehaus.janino.SimpleCompiler")()
    thread = java_class(jvm, "java.lang.Thread").currentThread()
    compiler.setParentClassLoader(thread.getContextClassLoader())
    compiler.cook(source)
    return compiler


def _constructor(compiler: Any, name: str) -> Any:
    return compiler.getClassLoader().loadClass(name).getConstructors()[0]
