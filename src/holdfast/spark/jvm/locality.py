"""How long Spark keeps a task waiting for its host, while pipelines run on a cluster.

A task that waits for its host beats one that fetches, or can't find, its state elsewhere. Spark has
one number for all jobs of an application, which it looks up whenever a stage begins: there is no way
to set it for some. So it is raised while any pipeline needs it, and then put back.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext

from holdfast.spark.jvm.gateway import java_context
from holdfast.spark.jvm.probing import Capability

__all__ = ["SETTING", "WAITING", "waiting_for_hosts"]

WAITING = Capability(
    "waiting for a task's host",
    {
        "org.apache.spark.SparkContext": ["conf/0"],
        "org.apache.spark.SparkConf": ["contains/1", "get/1", "remove/1", "set/2"],
    },
)

logger = logging.getLogger("holdfast.spark")

SETTING = "spark.locality.wait.node"
_WAIT = "600s"
_lock = threading.Lock()
_waiting: dict[str, int] = {}
"""Per application how many ask for it."""
_before: dict[str, str | None] = {}


@contextmanager
def waiting_for_hosts(context: SparkContext) -> Iterator[None]:
    """Tasks of stages that begin in here wait for their hosts, whosever they are."""
    application = str(context.applicationId)
    # Not the context's copy of it, and kept: a context that was stopped doesn't give it.
    conf = java_context(context).conf()
    with _lock:
        _waiting[application] = _waiting.get(application, 0) + 1
        if _waiting[application] == 1:
            _before[application] = str(conf.get(SETTING)) if conf.contains(SETTING) else None
            conf.set(SETTING, _WAIT)
            logger.info("%s is %s for all jobs while pipelines run", SETTING, _WAIT)
    try:
        yield
    finally:
        with _lock:
            _waiting[application] -= 1
            if not _waiting[application]:
                del _waiting[application]
                _put_back(conf, _before.pop(application))


def _put_back(conf: Any, before: str | None) -> None:
    try:
        if before is None:
            conf.remove(SETTING)
        else:
            conf.set(SETTING, before)
    except Py4JError as error:
        # The JVM has ended, and the setting with it.
        logger.debug("%s was not put back: %s", SETTING, error)
