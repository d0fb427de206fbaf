"""What of Spark's internals is there: each capability says what it needs, and that is looked up by reflection.

Internals change without notice. A module of this room that needs some of them says which, in a
:class:`Capability`. Without one that is required a start fails before it has changed anything; without one
that only makes epochs faster, whoever asks :func:`has` does it the slow way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar
from weakref import WeakKeyDictionary, ref

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext

from holdfast.errors import ConfigurationError, InternalError
from holdfast.spark.jvm.compiled import only_here
from holdfast.spark.jvm.gateway import running_context

__all__ = [
    "Capability",
    "OtherPlanError",
    "attempt",
    "has",
    "require",
    "switched_off",
    "turn_off",
    "why_off",
]

logger = logging.getLogger("holdfast.spark")

T = TypeVar("T")

VERSIONS = "4.1, 4.2 and 4.3"
"""The versions of Spark on which the tests of this room pass."""
_NAME = "io.holdfast.Looker"
_SOURCE = """
package io.holdfast;

import java.lang.reflect.Constructor;
import java.lang.reflect.Method;

public class Looker {
  public String missing(String wanted) {
    StringBuilder missing = new StringBuilder();
    String[] lines = wanted.split("\\n");
    for (int i = 0; i < lines.length; i++) {
      String[] words = lines[i].split(" ");
      Class owner = find(words[0]);
      if (owner == null) {
        missing.append(words[0]).append(' ');
      }
      for (int j = 1; owner != null && j < words.length; j++) {
        if (!has(owner, words[j])) {
          missing.append(words[0]).append('.').append(words[j]).append(' ');
        }
      }
    }
    return missing.toString();
  }

  private static Class find(String name) {
    try {
      // Not initialised: only looked at.
      return Class.forName(name, false, Thread.currentThread().getContextClassLoader());
    } catch (Throwable none) {
      return null;
    }
  }

  private static boolean has(Class owner, String word) {
    String name = word.substring(0, word.indexOf('/'));
    int count = Integer.parseInt(word.substring(word.indexOf('/') + 1));
    if (name.equals("new")) {
      Constructor[] made = owner.getConstructors();
      for (int i = 0; i < made.length; i++) {
        if (made[i].getParameterCount() == count) {
          return true;
        }
      }
      return false;
    }
    Method[] methods = owner.getMethods();
    for (int i = 0; i < methods.length; i++) {
      if (methods[i].getParameterCount() == count && methods[i].getName().equals(name)) {
        return true;
      }
    }
    return false;
  }
}
"""


@dataclass(frozen=True)
class Capability:
    """Something that Holdfast does with Spark's internals."""

    name: str
    needs: Mapping[str, Sequence[str]]
    """Classes of the JVM's, each with what it must have: ``method/number of arguments``, ``new/2``."""
    slower: str | None = None
    """What is done instead without it; None if there is nothing else to do."""
    python: Sequence[str] = ()
    """What PySpark must have: modules, and names in them as ``module:name``."""
    versions: str = VERSIONS

    def __hash__(self) -> int:
        """By name: there is one of each."""
        return hash(self.name)

    def probe(self, context: SparkContext) -> str | None:
        """What is missing in this application; None if nothing is. Looks every time."""
        wanted = "\n".join(" ".join((name, *members)) for name, members in self.needs.items())
        missing = str(_application(context).looker.missing(wanted)).split()
        missing += (word for word in self.python if not _python_has(word))
        return ", ".join(missing) or None


class _Application:
    """What was found out of an application."""

    def __init__(self, context: SparkContext) -> None:
        self.off: dict[Capability, str | None] = {}
        self._context = ref(context)

    @cached_property
    def looker(self) -> Any:
        """An object of the JVM's that looks: asked from here, each class would be some calls."""
        context = self._context()
        assert context is not None
        return only_here(context, _NAME, _SOURCE)


_known: WeakKeyDictionary[SparkContext, _Application] = WeakKeyDictionary()
_switched_off: dict[str, str] = {}


def _application(context: SparkContext) -> _Application:
    found = _known.get(context)
    if found is None:
        found = _known[context] = _Application(context)
    return found


def why_off(capability: Capability, context: SparkContext | None = None) -> str | None:
    """Why a capability can't be used; None if it can. Looked up once per application."""
    if capability.name in _switched_off:
        return _switched_off[capability.name]
    context = context or running_context()
    if context is None:
        return None
    off = _application(context).off
    if capability not in off:
        try:
            missing = capability.probe(context)
        except Py4JNetworkError as error:
            # Spark is going: whoever wants to use it will say so better.
            logger.debug("%s could not be looked up: %s", capability.name, error)
            return None
        except (Py4JError, TypeError) as error:
            # What has no class is a package to py4j, which can't be called.
            missing = f"way to look it up ({error})"
        off[capability] = None if missing is None else f"Spark {context.version} has no {missing}"
    return off[capability]


def has(capability: Capability) -> bool:
    """Whether a capability can be used in the running application."""
    return why_off(capability) is None


def attempt(capability: Capability, act: Callable[[], T]) -> T | None:
    """What is got with a capability; None if it is off, or turns out to be: it stays so then."""
    if not has(capability):
        return None
    try:
        return act()
    except OtherPlanError as error:
        turn_off(capability, str(error))
        return None


class OtherPlanError(InternalError):
    """Spark's plan of something isn't the one that is known: what relies on it can't be done."""


def turn_off(capability: Capability, why: str) -> None:
    """Do without a capability from now on: Spark has what it needs, but it isn't what it was."""
    context = running_context()
    if context is not None and has(capability):
        logger.warning("%s is off: %s; %s", capability.name, why, capability.slower)
        _application(context).off[capability] = why


def require(capability: Capability, what: str, context: SparkContext | None = None) -> None:
    """Raise ``ConfigurationError`` unless a capability is there that something needs."""
    why = why_off(capability, context)
    if why is not None:
        raise ConfigurationError(
            f"{what} can't run on this Spark: for {capability.name} {why}",
            hint=f"use a version of Spark that has it: {capability.versions} do",
        )


@contextmanager
def switched_off(capability: Capability, why: str = "it was switched off") -> Iterator[None]:
    """For tests: in here a capability is missing, whatever Spark has."""
    _switched_off[capability.name] = why
    try:
        yield
    finally:
        del _switched_off[capability.name]


def _python_has(word: str) -> bool:
    module, _, name = word.partition(":")
    try:
        found: object = import_module(module) if name else find_spec(module)
    except ImportError:
        return False
    return hasattr(found, name) if name else found is not None
