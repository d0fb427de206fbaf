"""An S3 server on loopback: versitygw (built once by Go), else moto's.

versitygw keeps real files behind S3, checks credentials and puts atomically. moto's server is the
fall-back where Go is missing: it keeps objects in memory and believes every key.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from importlib.util import find_spec
from pathlib import Path

from bench.services.daemon import Daemon, ServiceError, cache_folder, free_ports, locked, wait_until

__all__ = ["S3Server", "available", "build_versitygw"]

VERSION = "1.8.0"
_SOURCE = f"github.com/versity/versitygw/cmd/versitygw@v{VERSION}"
_HOW = "install Go (then versitygw is built, once), or: pip install 'moto[server]'"


def available() -> str:
    """Which server runs here: "versitygw", "moto", or "" for none."""
    if _built().exists() or shutil.which("go"):
        return "versitygw"
    return "moto" if find_spec("moto") and find_spec("flask") else ""


def build_versitygw() -> Path:
    """The server's program, built at the first call (some minutes of CPU)."""
    program = _built()
    with locked(program.parent):
        if not program.exists():
            if (go := shutil.which("go")) is None:
                raise ServiceError(
                    f"versitygw is built by Go, which is missing. What to do: {_HOW}"
                )
            done = subprocess.run(
                [go, "install", _SOURCE], env={**os.environ, "GOBIN": str(program.parent)},
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode != 0:
                raise ServiceError(f"Go could not build {_SOURCE}:\n{done.stderr[-2000:]}")
    return program


def _built() -> Path:
    return cache_folder(f"versitygw-{VERSION}") / "versitygw"


class S3Server(Daemon):
    """An S3 server with one user, on a free port of loopback::

    with S3Server(folder) as server:
        server.create_bucket("bucket")
        os.environ.update(server.client_variables())
        storage = open_storage("s3://bucket/ck")
    """

    access_key = "holdfast-tests"
    secret_key = "only-for-tests"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.name = self.kind = available()
        """Which server this is: "versitygw" or "moto"."""
        if not self.kind:
            raise ServiceError(f"there is no S3 server. What to do: {_HOW}")
        (self.port,) = free_ports(1)

    @property
    def checks_credentials(self) -> bool:
        """Whether wrong keys are refused."""
        return self.kind == "versitygw"

    @property
    def url(self) -> str:
        """The endpoint."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        """Where versitygw keeps its files: a folder per bucket."""
        return self.folder / "data"

    def client_variables(self) -> dict[str, str]:
        """The environment variables that a client needs."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
        }

    def command(self) -> list[str]:
        """versitygw's or moto's command line."""
        if self.kind == "moto":
            return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        self.data.mkdir(parents=True, exist_ok=True)
        return [
            str(build_versitygw()), "--port", f"127.0.0.1:{self.port}", "--quiet",
            "posix", str(self.data),
        ]  # fmt: skip

    def variables(self) -> dict[str, str]:
        """The one user's keys, out of sight of ``ps``."""
        return {"ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key}

    def wait_ready(self, within_s: float = 60) -> None:
        """Return when its port answers."""

        def answers() -> bool:
            if not self.alive:
                raise ServiceError(f"{self.name} ended at start; it said:\n{self.said()[-2000:]}")
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        wait_until(answers, f"{self.name} answers on port {self.port}", within_s)

    def create_bucket(self, name: str) -> None:
        """Make an empty bucket."""
        if self.kind == "versitygw":
            (self.data / name).mkdir(exist_ok=True)
        else:
            request = urllib.request.Request(f"{self.url}/{name}", method="PUT")
            urllib.request.urlopen(request, timeout=10).close()

    def __enter__(self) -> S3Server:
        self.start()
        try:
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
