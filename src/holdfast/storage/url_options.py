"""Times and sizes in the query of a storage's URL, by the rules that hold everywhere."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.durations import parse_duration
from holdfast.errors import ConfigurationError, InputError
from holdfast.sizes import parse_size

__all__ = ["check_renamed", "duration_of", "size_of"]

_EARLIER = {"timeout_s": "timeout=10s", "block_mb": "block=128MiB"}


def check_renamed(options: Mapping[str, str]) -> None:
    """Raise if an option is given by its earlier name."""
    for name, now in _EARLIER.items():
        if name in options:
            raise ConfigurationError(
                f"a storage's URL has no option {name!r}",
                hint=f"it is called {now.partition('=')[0]}: write it like {now}",
            )


def duration_of(options: Mapping[str, str], name: str, default: str) -> float:
    """Seconds, above zero.

    >>> duration_of({"timeout": "500ms"}, "timeout", "10s"), duration_of({}, "timeout", "10s")
    (0.5, 10.0)
    """
    text = options.get(name, default)
    try:
        # In a URL everything is text, a number of seconds too.
        seconds = parse_duration(float(text) if _is_number(text) else text, name)
    except InputError as error:
        raise ConfigurationError(error.message, hint=error.hint) from None
    if not seconds:
        raise ConfigurationError(f"{name} can't be {text!r}", hint="give a time above zero")
    return seconds


def size_of(options: Mapping[str, str], name: str, default: str, *, least: int = 1) -> int:
    """Bytes, at least some.

    >>> size_of({"block": "1MiB"}, "block", "128MiB"), size_of({}, "block", "128MiB")
    (1048576, 134217728)
    """
    text = options.get(name, default)
    try:
        return parse_size(
            int(text) if text.isascii() and text.isdigit() else text, name, least=least
        )
    except InputError as error:
        raise ConfigurationError(error.message, hint=error.hint) from None


def _is_number(text: str) -> bool:
    return text.isascii() and text.replace(".", "", 1).isdigit()
