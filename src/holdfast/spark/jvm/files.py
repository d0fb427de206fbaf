"""Files wherever Spark finds them: Hadoop's file systems, with Spark's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from holdfast.spark.jvm.gateway import java_class, jvm_of
from holdfast.spark.jvm.probing import Capability, require

__all__ = ["FILES", "HadoopFolder"]

FILES = Capability(
    "Hadoop's file systems",
    {
        "org.apache.hadoop.fs.Path": ["new/1", "getFileSystem/1"],
        "org.apache.hadoop.fs.FileSystem": [
            *("copyToLocalFile/4", "exists/1", "getContentSummary/1", "listStatus/1"),
        ],
    },
)


class HadoopFolder:
    """A folder by its URL; raises ``Py4JJavaError`` if there is no such file system."""

    def __init__(self, session: SparkSession, location: str) -> None:
        require(FILES, "holdfast adopt", session.sparkContext)
        self._path = java_class(jvm_of(session), "org.apache.hadoop.fs.Path")
        self.location = location
        context: Any = session.sparkContext
        self._system = self._path(location).getFileSystem(context._jsc.hadoopConfiguration())

    def exists(self, relative: str) -> bool:
        """Whether there is a file or a folder."""
        return bool(self._system.exists(self._at(relative)))

    def names(self, relative: str) -> list[str]:
        """What is in a folder, if it is there."""
        if not self.exists(relative):
            return []
        return [file.getPath().getName() for file in self._system.listStatus(self._at(relative))]

    def size(self, relative: str) -> int:
        """The bytes of a folder."""
        return int(self._system.getContentSummary(self._at(relative)).getLength())

    def fetch(self, relative: str, to: Path) -> None:
        """Copy a file to this machine."""
        self._system.copyToLocalFile(False, self._at(relative), self._path(f"file:{to}"), True)

    def _at(self, relative: str) -> Any:
        return self._path(f"{self.location}/{relative}")
