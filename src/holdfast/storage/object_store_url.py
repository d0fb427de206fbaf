"""What the URL of an object store says, and what the environment adds to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlsplit

from holdfast.errors import ConfigurationError
from holdfast.storage.url_options import check_renamed, duration_of

__all__ = ["ENVIRONMENT", "ObjectStorePlace"]

ENVIRONMENT = {
    "s3": "AWS_",
    "s3a": "AWS_",
    "gs": "GOOGLE_",
    "az": "AZURE_",
    "azure": "AZURE_",
    "abfs": "AZURE_",
    "abfss": "AZURE_",
}
"""URL schemes, and how the names of their environment variables begin."""

_HINT = "write it as s3://bucket/folder, gs://bucket/folder or az://container/folder, if need be with ?timeout=30s"


@dataclass(frozen=True, slots=True)
class ObjectStorePlace:
    """A prefix of a bucket.

    >>> place = ObjectStorePlace.of("s3://bucket/ck/?timeout=5s")
    >>> place.address, place.timeout_s
    ('s3://bucket/ck', 5.0)
    """

    url: str
    scheme: str
    address: str
    """The URL without options."""
    timeout_s: float
    """How long one request may take."""

    @classmethod
    def of(cls, url: str) -> ObjectStorePlace:
        """Read a URL; ``ConfigurationError`` says what is wrong with it."""
        parts = urlsplit(url)
        if parts.scheme not in ENVIRONMENT or not parts.netloc or parts.fragment:
            raise ConfigurationError(f"{url!r} is no object store", hint=_HINT)
        # abfss://container@account… is how Azure writes it; elsewhere it would be a key.
        if "@" in parts.netloc and not parts.scheme.startswith("abfs"):
            raise ConfigurationError(
                f"the {parts.scheme} URL of {parts.hostname} carries credentials",
                hint=f"set them in the environment ({ENVIRONMENT[parts.scheme]}…): URLs end up in logs",
            )
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        check_renamed(options)
        if unknown := sorted(options.keys() - {"timeout"}):
            raise ConfigurationError(
                f"{parts.scheme}://{parts.netloc}{parts.path} has unknown options: {', '.join(unknown)}",
                hint="the only option is timeout; credentials and endpoint come from the environment",
            )
        address = f"{parts.scheme}://{parts.netloc}/{parts.path.strip('/')}".rstrip("/")
        return cls(url, parts.scheme, address, duration_of(options, "timeout", "30s"))

    def settings(self, environ: Mapping[str, str]) -> frozenset[tuple[str, str]]:
        """The variables that matter to this store's client."""
        begins = ENVIRONMENT[self.scheme]
        return frozenset((k, v) for k, v in environ.items() if k.startswith(begins))

    def is_plain_http(self, environ: Mapping[str, str]) -> bool:
        """Whether the endpoint was given as http://, which clients refuse unless told."""
        return any(
            "ENDPOINT" in name and value.startswith("http://")
            for name, value in self.settings(environ)
        )
