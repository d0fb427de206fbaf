"""The command line."""

from __future__ import annotations

import io
import sys

__all__ = ["main"]


def main() -> None:
    """Run the command that the process was started with; the entry point ``holdfast``."""
    from holdfast.cli.app import app

    if isinstance(sys.stdout, io.TextIOWrapper):
        # Terminals have any encoding, and folders and data any text; stderr is like this already.
        sys.stdout.reconfigure(errors="backslashreplace")
    app(prog_name="holdfast")
