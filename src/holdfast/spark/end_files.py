"""Files by which a test's sources say that they have ended."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame

from holdfast.spark.jvm.trees import streaming_steps

__all__ = ["END_OPTION", "end_files"]

END_OPTION = "holdfast.end_file"
"""An option of a file source: a file that says, once it is there, that the source has ended."""
_FILE_SOURCE = "StreamingRelation"


def end_files(source: DataFrame) -> list[Path]:
    """The files that say that what a stream is read from has ended; none unless there is one for each."""
    files = []
    for step in streaming_steps(source):
        if step.is_source:
            name = dict(step.options).get(END_OPTION)
            if step.name != _FILE_SOURCE or name is None:
                return []
            files.append(Path(name))
    return files
