"""What an ``hdfs://`` URL says: where, and with which options."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast.errors import ConfigurationError
from holdfast.storage.url_options import check_renamed, duration_of, size_of

__all__ = ["HdfsPlace"]

_HINT = "write it as hdfs://namenode:9000/folder, if need be with ?replication=3&block=128MiB&timeout=10s&web=http://namenode:9870"
_MIB = 1 << 20
_OPTIONS = ("replication", "block", "timeout", "web")


@dataclass(frozen=True, slots=True)
class HdfsPlace:
    """A folder of an HDFS, and how to write there.

    >>> place = HdfsPlace.of("hdfs://nn:9000/ck/?replication=2")
    >>> place.root, place.replication, place.web, place.path("log/7")
    ('/ck', 2, 'http://nn:9870', '/ck/log/7')
    """

    url: str
    host: str
    port: int | None
    """None for a name service, whose NameNodes hdfs-site.xml tells."""
    root: str
    """The folder's absolute path, without a slash at its end."""
    replication: int | None
    """Copies of each block; None leaves it to the configuration of Hadoop."""
    block_bytes: int
    timeout_s: float
    web: str
    """The NameNode's HTTP address."""

    @classmethod
    def of(cls, url: str) -> HdfsPlace:
        """Read a URL; ``ConfigurationError`` says what is wrong with it."""
        parts = urlsplit(url)
        if parts.scheme != "hdfs" or not parts.hostname or parts.fragment:
            raise ConfigurationError(f"{url!r} is no HDFS folder", hint=_HINT)
        if "@" in parts.netloc:
            raise ConfigurationError(
                f"the HDFS URL of host {parts.hostname} names a user",
                hint="set HADOOP_USER_NAME instead, or log in with Kerberos",
            )
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        check_renamed(options)
        if unknown := sorted(options.keys() - set(_OPTIONS)):
            raise ConfigurationError(
                f"{url!r} has unknown options: {', '.join(unknown)}",
                hint=f"the options are {', '.join(_OPTIONS)}",
            )
        root = "/" + unquote(parts.path).strip("/")
        return cls(
            url=url,
            host=parts.hostname,
            port=_port(url),
            root="" if root == "/" else root,
            replication=_number(url, options, "replication"),
            # HDFS wants a multiple of what one of its checksums covers.
            block_bytes=size_of(options, "block", "128MiB", least=_MIB) // _MIB * _MIB,
            timeout_s=duration_of(options, "timeout", "10s"),
            web=options.get("web", f"http://{parts.hostname}:9870"),
        )

    @property
    def authority_url(self) -> str:
        """The NameNode or name service alone."""
        return f"hdfs://{self.host}" + (f":{self.port}" if self.port else "")

    def path(self, name: str) -> str:
        """The absolute path of an object or folder."""
        return f"{self.root}/{name}".rstrip("/") or "/"


def _port(url: str) -> int | None:
    try:
        return urlsplit(url).port
    except ValueError as error:
        raise ConfigurationError(f"{url!r} has no valid port: {error}", hint=_HINT) from error


def _number(url: str, options: dict[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise ConfigurationError(
            f"{name} in {url!r} is {text!r}", hint="give a whole number above zero"
        )
    return int(text)
