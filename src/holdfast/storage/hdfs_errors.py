"""What the HDFS client's errors mean, and what to do about them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

__all__ = ["HdfsFault", "fault_of"]

# The client shows what the NameNode says as RPCError, with Java's class name and message.
_RPC = re.compile(r'^(?:Fatal)?RPCError\("([\w.$]+)", "(.*)"\)$', re.DOTALL)

Kind = Literal["missing", "exists", "other"]


@dataclass(frozen=True, slots=True)
class HdfsFault:
    """An error of the client in words."""

    kind: Kind
    text: str
    hint: str = "check that NameNode and DataNodes run (hdfs dfsadmin -report) and that this host reaches them"
    is_final: bool = False
    """Whether trying again at once is useless."""


# By the end of the Java class's name, or words of the message; the first that fits counts.
_KNOWN: tuple[tuple[str, str, str, bool], ...] = (
    (
        "SafeModeException",
        "the NameNode is in safe mode and lets nobody write",
        "wait until enough DataNodes have reported, or end it: hdfs dfsadmin -safemode leave",
        True,
    ),
    (
        "AccessControlException",
        "no permission",
        "give this user (HADOOP_USER_NAME, or who runs this) the right to read and write there: hdfs dfs -chown",
        True,
    ),
    (
        "QuotaExceededException",
        "the quota is used up",
        "free some space or have the quota raised: hdfs dfsadmin -setSpaceQuota",
        True,
    ),
    (
        "must both be directories",
        "a folder stands where an object is needed",
        "move it away",
        True,
    ),
    (
        "All DataNodes failed",
        "no DataNode that holds it answers",
        "start the DataNodes that hold it: hdfs fsck PATH -files -blocks -locations names them",
        False,
    ),
    (
        "StandbyException",
        "this NameNode is a standby",
        "use the name service of hdfs-site.xml (HADOOP_CONF_DIR) rather than one NameNode",
        False,
    ),
    (
        "could only be written to 0",
        "no DataNode takes the data",
        "start DataNodes, or free space on them: hdfs dfsadmin -report shows which are live",
        False,
    ),
)


def fault_of(error: Exception) -> HdfsFault:
    """Read an error of the client.

    >>> fault_of(RuntimeError('RPCError("java.io.Safe.SafeModeException", "Cannot create")')).text
    'the NameNode is in safe mode and lets nobody write (Cannot create)'
    """
    text = str(error)
    if match := _RPC.match(text):
        java, text = match[1], match[2]
    else:
        java = type(error).__name__
    # Java's stack trace follows; some of the client's own errors are very long lines.
    words = re.split(r"\n|\\n", text)[0][:300]
    if "(is not a directory)" in words:
        return HdfsFault("missing", "a file stands where a folder is needed", "move it away", True)
    if isinstance(error, (FileNotFoundError, IsADirectoryError)):
        return HdfsFault("missing", f"it is not there ({words})")
    if java.endswith(("FileExistsError", "FileAlreadyExistsException")):
        return HdfsFault("exists", f"it is there already ({words})", is_final=True)
    if java.endswith("PathIsNotEmptyDirectoryException"):
        return HdfsFault("missing", "it is a folder", is_final=True)
    for sign, meaning, hint, is_final in _KNOWN:
        if java.endswith(sign) or sign in text:
            detail = "" if sign == "All DataNodes failed" else f" ({words})"
            return HdfsFault("other", f"{meaning}{detail}", hint, is_final)
    return HdfsFault("other", words)
