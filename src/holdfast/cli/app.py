"""The commands, and what becomes of their errors.

An error that Holdfast raises on purpose is a message on standard error and an exit code: 1, or 75
for a fenced driver. Everything else is a bug, and shows its traceback.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperGroup

from holdfast.cli.adopt import adopt
from holdfast.cli.checkpoints import checkpoints
from holdfast.cli.demo import demo
from holdfast.cli.nexmark import nexmark
from holdfast.cli.placement import placement
from holdfast.cli.show import errors
from holdfast.cli.state import state
from holdfast.cli.verify import verify
from holdfast.errors import FencedError, HoldfastError

__all__ = ["app"]


class _Commands(TyperGroup):
    """A group whose commands end with a message instead of a traceback."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # Behind the command too: that is where one adds it to a line that has just failed.
        if "--debug" in args:
            args = ["--debug", *(a for a in args if a != "--debug")]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except HoldfastError as error:
            if ctx.params.get("debug"):
                raise
            errors.print(f"[red]error:[/] [default]{escape(error.message)}[/]", soft_wrap=True)
            if error.hint:
                errors.print(f"[dim]what to do:[/] {escape(error.hint)}", soft_wrap=True)
            code = FencedError.EXIT_CODE if isinstance(error, FencedError) else 1
            raise typer.Exit(code) from error


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
) -> None:
    """Look into the checkpoints of Holdfast pipelines, and make them of Spark's."""
    del debug  # read by the group, which sees every error


app.command()(demo)
app.command()(checkpoints)
app.command()(verify)
app.command()(state)
app.command()(placement)
app.command()(adopt)
app.command()(nexmark)
