"""Pins: what somebody outside the pipeline's driver uses and retention must therefore leave.

A pin and a collection may meet. The pinner writes its pin and then looks whether a collect entry
already names what it wants; the collector writes its collect entry and then looks for pins. So
whichever comes second sees the other: nothing is both pinned and deleted (invariant 9).
"""

from __future__ import annotations

import contextlib

import msgspec

from holdfast.checkpoint.entry import seal, unseal
from holdfast.checkpoint.log_state import read_log
from holdfast.errors import ConfigurationError, CorruptionError, InputError
from holdfast.failpoints import failpoint
from holdfast.storage import NotFoundError, Storage
from holdfast.storage.base import is_safe_part

__all__ = ["Pin", "live_pins", "pin", "read_pins", "unpin"]


class Pin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Somebody uses a checkpoint: its entry and all objects it names stay."""

    id: str
    entry: int
    owner: str
    """Who, in words for people."""
    created_ms: int
    reason: str = ""
    expires_ms: int | None = None
    """When it ends by itself, should its owner die; None for never."""


def pin(
    storage: Storage,
    entry: int,
    owner: str,
    *,
    pin_id: str,
    now_ms: int,
    reason: str = "",
    lasts_ms: int | None = None,
    damaged_ok: bool = False,
) -> Pin:
    """Keep a checkpoint from being collected until :func:`unpin`, or for ``lasts_ms`` at most.

    ``damaged_ok`` is for a log whose end is damaged (see ``read_log``). ``InputError`` if the id is no name, ``ConfigurationError`` if it is taken or the checkpoint is
    not there (any more).
    """
    made = Pin(
        id=pin_id,
        entry=entry,
        owner=owner,
        created_ms=now_ms,
        reason=reason,
        expires_ms=None if lasts_ms is None else now_ms + lasts_ms,
    )
    name, data = _name(pin_id), seal(msgspec.json.encode(made))
    # "Exists" may answer a request that was repeated on the way: then it is this very pin.
    if not storage.put_if_absent(name, data) and storage.get(name) != data:
        raise ConfigurationError(
            f"there is a pin {pin_id!r} in {storage.url} already",
            hint="use another id, or unpin it",
        )
    failpoint("pins.after_write")
    try:
        _check_still_there(storage, entry, damaged_ok=damaged_ok)
    except BaseException:
        storage.delete([name])
        raise
    return made


def unpin(storage: Storage, pin_id: str) -> None:
    """Release a pin; one that doesn't exist is no error."""
    storage.delete([_name(pin_id)])


def read_pins(storage: Storage) -> dict[str, Pin]:
    """All pins by id. ``CorruptionError`` if one is damaged: then nobody knows what it protects."""
    pins = {}
    for info in storage.list("pins/"):
        with contextlib.suppress(NotFoundError):  # released while we were listing
            data = storage.get(info.name)
            what = f"pin {info.name} in {storage.url}"
            try:
                found = msgspec.json.decode(unseal(data, what), type=Pin)
                if info.name != f"pins/{found.id}":
                    raise CorruptionError(f"it is the pin {found.id!r} under another name")
            except (CorruptionError, UnicodeDecodeError, msgspec.DecodeError) as error:
                raise CorruptionError(
                    f"{what} can't be read: {error}",
                    hint="delete that object when its owner is done; nothing is collected till then",
                ) from error
            pins[found.id] = found
    return pins


def live_pins(storage: Storage, now_ms: int) -> dict[str, Pin]:
    """All pins by id, without those whose time is over: they are removed. For who collects."""
    pins = read_pins(storage)
    over = [p.id for p in pins.values() if p.expires_ms is not None and p.expires_ms <= now_ms]
    for pin_id in over:
        del pins[pin_id]
        unpin(storage, pin_id)
    return pins


def _name(pin_id: str) -> str:
    if not is_safe_part(pin_id):
        raise InputError(f"{pin_id!r} can't be a pin's id", hint="use letters, digits and ._=+-")
    return f"pins/{pin_id}"


def _check_still_there(storage: Storage, number: int, *, damaged_ok: bool) -> None:
    """Look again, now that the pin is there: is it too late?

    An entry that any collect entry named no longer counts, so it isn't found; the objects are
    looked at all the same.
    """
    state = read_log(storage, damaged_ok=damaged_ok)
    found = state.find_checkpoint(entry=number)
    assert found is not None
    collect = state.last_collect
    if collect is not None and collect.number > number:
        doomed = found.objects().intersection(collect.objects)
        if doomed:
            raise ConfigurationError(
                f"checkpoint entry {number} in {storage.url} is being deleted",
                hint="pin a newer checkpoint",
            )
