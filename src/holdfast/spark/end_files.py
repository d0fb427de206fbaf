"""Files by which a test's sources say that they have ended."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame

from holdfast.spark.jvm.trees import nodes

__all__ = ["END_OPTION", "end_files"]

END_OPTION = "holdfast.end_file"
"""An option of a file source: a file that says, once it is there, that the source has ended."""
_FILE_SOURCE = "StreamingRelation"


def end_files(source: DataFrame) -> list[Path]:
    """The files that say that what a stream is read from has ended; none unless there is one for each."""
    plan = source._jdf.queryExecution().analyzed()
    leaves = [node for node in nodes(plan) if node.children().isEmpty() and node.isStreaming()]
    files = []
    for leaf in leaves:
        if leaf.nodeName() != _FILE_SOURCE:
            return []
        name = leaf.dataSource().options().get(END_OPTION)
        if name.isEmpty():
            return []
        files.append(Path(name.get()))
    return files
