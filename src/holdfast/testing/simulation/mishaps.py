"""What may go wrong in a world, and how likely it is. A seed decides; then it ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

__all__ = ["Mishaps"]


@dataclass
class Mishaps:
    """How likely each kind of fault is, as long as any are."""

    draw: Random = field(repr=False)
    on: bool = True
    doubled: float = 0.0
    """A report that comes twice."""
    again: float = 0.0
    """A partition that is computed twice."""
    sink_before: float = 0.0
    """A sink that fails and has done nothing."""
    sink_after: float = 0.0
    """A sink that has published and doesn't get to say so."""
    user_code: float = 0.0
    """User code that raises."""

    @classmethod
    def drawn(cls, draw: Random) -> Mishaps:
        """Each kind is absent, rare or common."""

        def some() -> float:
            return draw.choice((0.0, 0.0, 0.02, 0.1))

        return cls(draw, True, some(), some(), some(), some(), draw.choice((0.0, 0.0, 0.01)))

    def strikes(self, likely: float) -> bool:
        """Whether one happens now."""
        return self.on and likely > 0 and self.draw.random() < likely

    def off(self) -> None:
        """From here on nothing goes wrong."""
        self.on = False
