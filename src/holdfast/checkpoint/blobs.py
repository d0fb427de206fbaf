"""Blobs: small files, such as Spark's offsets, under a name that vouches for their bytes."""

from __future__ import annotations

import hashlib

from holdfast.errors import CorruptionError
from holdfast.storage import NotFoundError, Storage

__all__ = ["blob_digest", "blob_name", "is_content_of", "read_blob"]

_DIGEST_CHARACTERS = 40


def blob_digest(data: bytes) -> str:
    """What the name of a blob with this content ends in: the beginning of its SHA-256."""
    return hashlib.sha256(data).hexdigest()[:_DIGEST_CHARACTERS]


def blob_name(claim: int, number: int, digest: str) -> str:
    """The name of a blob that an entry will be the first to name.

    With the entry's number a name is never used again, even for the same content.
    """
    return f"blobs/{claim}-{number}-{digest}"


def is_content_of(name: str, data: bytes) -> bool:
    """Whether these are the bytes that were stored under the name of a blob.

    >>> is_content_of(blob_name(0, 1, blob_digest(b"v1")), b"v1"), is_content_of("blobs/0-1-", b"v1")
    (True, False)
    """
    return name.rpartition("-")[2] == blob_digest(data)


def read_blob(storage: Storage, name: str, whose: str) -> bytes:
    """The content of a blob, compared with the digest in its name (invariant 10).

    ``CorruptionError``, which says of ``whose`` it is, if it is missing or isn't what was stored.
    """
    hint = "restore the object from a copy, or start from an older entry with from_entry=…"
    # Bytes may also change on their way here: a blob is damaged if it is so twice.
    for _ in range(2):
        try:
            data = storage.get(name)
        except NotFoundError:
            raise CorruptionError(f"{whose} names {name}, which is missing", hint=hint) from None
        if is_content_of(name, data):
            return data
    raise CorruptionError(
        f"{whose} names {name} in {storage.url}, whose content is not what its name says", hint=hint
    )
