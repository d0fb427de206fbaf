"""For the command line: a session, and the user's program from a module or a file."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark.sql import SparkSession

from holdfast.errors import InputError
from holdfast.spark.said import SaidPipeline, SaidResult
from holdfast.spark.session import configure

__all__ = ["load_program", "new_session"]


def new_session() -> SparkSession:
    """The session that runs already, or a quiet new one with Spark's own defaults."""
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    builder = SparkSession.builder.appName("holdfast adopt")
    builder = builder.config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    return configure(builder).getOrCreate()


def load_program(text: str, spark: SparkSession) -> SaidPipeline | SaidResult:
    """What the function ``module:function`` (or ``file.py:function``) returns.

    It is called with the session, if it takes an argument.
    """
    where, colon, name = text.rpartition(":")
    if not colon or not where or not name.isidentifier():
        raise InputError(
            f"{text!r} does not name a function",
            hint="write module:function or path/to/file.py:function",
        )
    module = _module(where)
    function: Callable[..., Any] | None = getattr(module, name, None)
    if not callable(function):
        raise InputError(
            f"{where} has no function {name!r}",
            hint="name a function that takes the Spark session and returns the pipeline",
        )
    takes_session = bool(inspect.signature(function).parameters)
    made: SaidPipeline | SaidResult = function(spark) if takes_session else function()
    return made


def _module(where: str) -> ModuleType:
    path = Path(where)
    try:
        if path.suffix != ".py":
            # As with python -m: modules of the folder one stands in are found.
            sys.path.insert(0, str(Path.cwd()))
            try:
                return importlib.import_module(where)
            finally:
                sys.path.pop(0)
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except (ModuleNotFoundError, FileNotFoundError) as error:
        raise InputError(
            f"the program {where} can't be loaded: {error}",
            hint="name a module that can be imported from here, or a file",
        ) from error
    return module
