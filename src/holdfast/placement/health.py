"""Which hosts to avoid: those that keep failing, for a while, and those being drained."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["HostHealth"]


@dataclass(slots=True)
class _Record:
    """What is held against a host."""

    failures: list[float] = field(default_factory=list)
    """When it failed, as far back as that counts."""
    until: float = 0.0
    """It is avoided until then."""
    pauses: int = 0
    """How often it was avoided since it was last forgiven."""


class HostHealth:
    """Remembers the failures of hosts. Reads no clock: ``now`` is any clock's seconds.

    A host that fails ``failures`` times ``within_s`` is avoided for ``pause_s``. If it goes on
    failing when it is back, the pause doubles, up to ``longest_s``; once it has been back for
    ``within_s`` without failing, it is forgiven.

    >>> health = HostHealth(failures=2)
    >>> health.failed("h2", now=5.0)
    >>> health.failed("h2", now=9.0)
    >>> health.drain("h3")
    >>> health.avoided(now=29.0)
    {'h2': 'failed 2 times within 10 min, avoided for another 40 s', 'h3': 'drained'}
    >>> health.avoided(now=70.0)
    {'h3': 'drained'}
    """

    def __init__(
        self,
        *,
        failures: int = 3,
        within_s: float = 600.0,
        pause_s: float = 60.0,
        longest_s: float = 1800.0,
    ) -> None:
        if failures < 1 or within_s <= 0 or pause_s <= 0 or longest_s < pause_s:
            raise ValueError("a host is avoided after at least one failure, for a time above zero")
        self.failures = failures
        self.within_s = within_s
        self.pause_s = pause_s
        self.longest_s = longest_s
        self._records: dict[str, _Record] = {}
        self._drained: set[str] = set()

    def failed(self, host: str, now: float) -> None:
        """Note that a host has failed: an executor lost, a task that could not open its state."""
        self._forgive(host, now)
        record = self._records.setdefault(host, _Record())
        record.failures = [at for at in record.failures if now - at < self.within_s] + [now]
        # What fails while the host is avoided was begun before: it must not double the pause.
        if now >= record.until and len(record.failures) >= self.failures:
            record.until = now + min(self.pause_s * 2**record.pauses, self.longest_s)
            record.pauses = min(record.pauses + 1, 64)

    def avoided(self, now: float) -> dict[str, str]:
        """The hosts to avoid, by name, each with the reason."""
        reasons = {
            host: f"failed {self._recent(record)} within {_words(self.within_s)}, "
            f"avoided for another {_words(record.until - now)}"
            for host, record in self._records.items()
            if now < record.until
        }
        reasons.update(dict.fromkeys(self._drained, "drained"))
        return dict(sorted(reasons.items()))

    def drain(self, host: str) -> None:
        """Avoid a host until :meth:`undrain`."""
        self._drained.add(host)

    def undrain(self, host: str) -> None:
        """Use a drained host again."""
        self._drained.discard(host)

    @property
    def drained(self) -> frozenset[str]:
        """The hosts being drained."""
        return frozenset(self._drained)

    def _forgive(self, host: str, now: float) -> None:
        record = self._records.get(host)
        if record is not None:
            quiet_since = max(record.until, record.failures[-1])
            if now - quiet_since >= self.within_s:
                del self._records[host]

    @staticmethod
    def _recent(record: _Record) -> str:
        return "once" if len(record.failures) == 1 else f"{len(record.failures)} times"


def _words(seconds: float) -> str:
    """A length of time, coarsely.

    >>> _words(0.2), _words(90), _words(1800)
    ('1 s', '90 s', '30 min')
    """
    whole = max(1, round(seconds))
    return f"{whole // 60} min" if whole >= 120 and whole % 60 == 0 else f"{whole} s"
