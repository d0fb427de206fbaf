"""The command line."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command that the process was started with; the entry point ``holdfast``."""
    from holdfast.cli.app import app

    app(prog_name="holdfast")
