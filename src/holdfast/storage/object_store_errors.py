"""What the errors of object stores mean, and what to do about them."""

from __future__ import annotations

import re

from holdfast.storage.object_store_url import ENVIRONMENT

__all__ = ["is_missing_object", "words_of"]

_CODE = re.compile(r"<Code>([^<]+)</Code>(?:.*?<Message>([^<]*)</Message>)?", re.DOTALL)
_CAUSE = re.compile(r'message: "([^"]+)"')
_CREDENTIALS = (
    "InvalidAccessKeyId", "SignatureDoesNotMatch", "XAdminUserNotFound", "ExpiredToken",
    "InvalidToken", "AuthenticationFailed", "401 Unauthorized",
)  # fmt: skip
_MISSING = ("NoSuchKey", "NoSuchObject", "NotFound", "BlobNotFound", "ResourceNotFound")


def is_missing_object(error: FileNotFoundError) -> bool:
    """Whether it is the object that isn't there, not its bucket or the user.

    >>> is_missing_object(FileNotFoundError("404: <Code>NoSuchKey</Code>"))
    True
    >>> is_missing_object(FileNotFoundError("404: <Code>NoSuchBucket</Code>"))
    False
    """
    match = _CODE.search(str(error))
    return match is None or match[1] in _MISSING


def words_of(error: Exception, scheme: str) -> tuple[str, str]:
    """What happened, and what to do.

    >>> error = OSError("404: <Code>NoSuchBucket</Code><Message>It does not exist.</Message>")
    >>> words_of(error, "s3")
    ('NoSuchBucket: It does not exist', 'create the bucket, or correct its name in the URL')
    """
    whole = str(error)
    first, _, debug = whole.partition("\n\nDebug source")
    match = _CODE.search(first)
    if match:
        text = ": ".join(filter(None, (match[1], (match[2] or "").rstrip(". "))))
    else:
        cause = _CAUSE.search(debug)
        line = first.partition("\n")[0].strip()
        text = f"{line} ({cause[1]})" if cause else line
    return text, _hint(whole, ENVIRONMENT[scheme])


def _hint(text: str, variables: str) -> str:
    where = f"in the environment ({variables}…) of the driver and of every executor"
    hints = (
        (
            ("NoSuchBucket", "ContainerNotFound"),
            "create the bucket, or correct its name in the URL",
        ),
        (_CREDENTIALS, f"check the credentials {where}"),
        # Without any, clients ask the cloud's machine for them.
        (("/latest/api/token", "metadata"), f"set credentials {where}"),
        (
            ("403 Forbidden", "AccessDenied"),
            f"let these credentials list, read, write and delete there, or correct them {where}",
        ),
        (("Account must be specified",), "set AZURE_STORAGE_ACCOUNT_NAME"),
        (
            ("error sending request", "timed out"),
            f"check the endpoint ({variables}ENDPOINT_URL) and that this host reaches it",
        ),
    )
    for signs, hint in hints:
        if any(sign in text for sign in signs):
            return hint
    return "check the store, then retry"
