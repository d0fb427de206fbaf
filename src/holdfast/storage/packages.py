"""Packages that only some kinds of storage need."""

from __future__ import annotations

from importlib.util import find_spec

from holdfast.errors import ConfigurationError

__all__ = ["require_package"]


def require_package(module: str, extra: str, url: str) -> None:
    """Raise ``ConfigurationError`` if ``module``, which Holdfast's ``extra`` installs, is missing.

    >>> require_package("json", "none", "file:///ck")
    """
    if find_spec(module) is None:
        raise ConfigurationError(
            f"{url} needs the Python package {module.replace('_', '-')}, which is not installed here",
            hint=f"pip install 'holdfast[{extra}]', on the driver and on every executor",
        )
