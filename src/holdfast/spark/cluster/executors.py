"""Holdfast's way to the executors' Python: the package itself is sent, its dependencies are checked."""

from __future__ import annotations

import logging
import sys
import threading
import uuid
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pyspark import SparkContext

from holdfast.driver.own_folders import until_exit
from holdfast.errors import ConfigurationError
from holdfast.spark.jvm.placed import Placer
from holdfast.tasks.disk import leave_mark, remove_marks, see_marks

__all__ = ["REQUIRED", "check_executors", "check_shared", "send_holdfast"]

logger = logging.getLogger("holdfast.spark")

REQUIRED = {"pyarrow": (20,), "numpy": (1, 26), "msgspec": (0, 19), "xxhash": (3, 5)}
"""What tasks import, and the lowest version of each."""
_lock = threading.Lock()


def send_holdfast(context: SparkContext) -> None:
    """Have executors import this very Holdfast; once per Spark application."""
    with _lock:
        if getattr(context, "_holdfast_sent", False):
            return
        package = Path(__file__).resolve().parents[2]
        # Executors that join later fetch it from the driver too.
        archive = until_exit("holdfast-package-") / "holdfast.zip"
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
            for path in sorted(package.rglob("*.py")):
                target.write(path, Path("holdfast") / path.relative_to(package))
        context.addPyFile(str(archive))
        context._holdfast_sent = True  # type: ignore[attr-defined] # noqa: SLF001 - ours


def check_executors(
    context: SparkContext, hosts: Sequence[str], more: Mapping[str, tuple[int, ...]]
) -> None:
    """Raise ``ConfigurationError`` unless every host's Python has what tasks import.

    ``more`` is what they need besides :data:`REQUIRED`: packages of the storage, say.
    """
    wanted = {**REQUIRED, **more}
    # Not imported: the package's front imports this room.
    own = str(sys.modules["holdfast"].__version__)
    look = _looker(wanted, own)
    found = Placer(context).indexes(hosts).map(lambda i: (hosts[i], *look())).collect()
    bad = [(host, python, missing) for host, python, missing in found if missing]
    if not bad:
        return
    lacking = sorted({name for _, _, missing in bad for name, _ in missing})
    words = "; ".join(
        f"{host} ({python}): " + ", ".join(f"{name} {state}" for name, state in missing)
        for host, python, missing in bad
    )
    lowest = {name: ".".join(map(str, numbers)) for name, numbers in wanted.items()}
    pins = " ".join(f"'{n}>={lowest.get(n, own)}'" for n in lacking)
    raise ConfigurationError(
        f"the executors' Python lacks packages that Holdfast needs: {words}",
        hint=f"on those hosts run: {bad[0][1]} -m pip install {pins} "
        "(or ship an environment with spark.archives)",
    )


def check_shared(
    context: SparkContext, neighbours: Mapping[str, Sequence[str]], root: Path
) -> None:
    """Raise ``ConfigurationError`` if executors of one host don't see each other's files.

    ``neighbours`` are the ids of each host's executors. Each leaves a file in a folder below
    ``root``; then each says which it sees. What is made is removed.
    """
    # Spark takes the name of a place apart at underscores.
    shared = {host: names for host, names in neighbours.items() if "_" not in host}
    places = [(host, name) for host, names in shared.items() for name in names]
    if not places:
        return
    made = root / f".shared-{uuid.uuid4().hex}"
    # Spark's way to name an executor as a place.
    rdd = Placer(context).indexes([f"executor_{host}_{name}" for host, name in places])
    left = rdd.map(lambda index: leave_mark(made, str(index))).collect()
    try:
        seen = rdd.map(lambda _: see_marks(made)).collect()
    finally:
        rdd.map(lambda _: remove_marks(made)).collect()
    for (host, name), marks in zip(places, seen, strict=True):
        own = [i for i, (other, _) in enumerate(places) if other == host]
        # Where nobody can write, a look at the host's disk says so better.
        if any(left[i] for i in own) and not {str(i) for i in own} <= set(marks):
            raise ConfigurationError(
                f"local_dir {root} on {host} isn't shared: executor {name} doesn't see the files of "
                f"others (executors {', '.join(neighbours[host])} run there)",
                hint="local_dir must be the same folder for all executors of a host: in containers, "
                "mount one volume of the host into each",
            )


def _looker(
    required: dict[str, tuple[int, ...]], own: str
) -> Callable[[], tuple[str, list[tuple[str, str]]]]:
    """A function that needs nothing but Python where it runs: it is sent by value.

    ``own`` is the driver's version of Holdfast; a host may have imported another before it is sent.
    """

    def look() -> tuple[str, list[tuple[str, str]]]:
        import sys
        from importlib import metadata

        bad = []
        preloaded = getattr(sys.modules.get("holdfast"), "__version__", own)
        if preloaded != own:
            bad.append(("holdfast", f"is {preloaded}, but the driver has {own}"))
        for name, lowest in required.items():
            try:
                version = metadata.version(name)
            except metadata.PackageNotFoundError:
                bad.append((name, "is missing"))
                continue
            numbers = tuple(int(part) for part in version.split(".")[:3] if part.isdigit())
            if numbers < lowest:
                bad.append((name, f"is {version}"))
        return sys.executable, bad

    return look
