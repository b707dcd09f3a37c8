"""Finds the matrix stores and checkpoints in object storage without reading their content.  Imports no NumPy."""

from __future__ import annotations

import re
from typing import Final

from storage.errors import Conflict
from storage.remote.objects import Objects, Stat

#: Name of the object that exists once a store is sealed; it names the sealed generation (the objects of one writer).
SEAL: Final = "zarr.json"
#: Name of the checkpoint of a claim without a number.  A checkpoint says how far an unfinished solve has come, and in
#: which generation.  The checkpoint of a claim with a number has a name below ``_CHECKPOINTS``.
CHECKPOINT: Final = "checkpoint.json"
_CHECKPOINTS: Final = "checkpoints/"
#: Matches names of generations and checkpoints that contain the number of a claim.
_OF_CLAIM: Final = re.compile(r"(?:g|checkpoints/)([0-9]{20})[-.]")


def sealed_stat(address: str) -> Stat | None:
    """Return size, entity tag and time of the seal of the store at ``address``; None without a seal.  Raises
    StorageFailed.
    """
    return Objects(address).stat(SEAL)


def checkpoint_stat(address: str) -> Stat | None:
    """Return size, entity tag and time of the newest checkpoint at ``address``; None without one.  Raises
    StorageFailed.
    """
    objects = Objects(address)
    return objects.stat(newest_checkpoint(objects))


def checkpoint_name(claim: int) -> str:
    """Return the name of a claim's checkpoint.  No other claim writes this object, so an older claim cannot change the
    checkpoint of a newer one.
    """
    return f"{_CHECKPOINTS}{claim:020d}.json" if claim else CHECKPOINT


def newest_checkpoint(objects: Objects) -> str:
    """Return the name of the checkpoint of the highest claim; the object need not exist.  Raises StorageFailed."""
    return max(objects.names(_CHECKPOINTS), default=CHECKPOINT)


def claim_of(name: str) -> int:
    """Return the number of the claim that an object belongs to; 0 for objects of claims without a number."""
    found = _OF_CLAIM.match(name)
    return int(found[1]) if found else 0


def check_address(address: str, *, overwrite: bool) -> Stat | None:
    """Return size, entity tag and time of the seal of the store that will be replaced; None if there is no store.

    Raises:
        Conflict: there is a store, and it may not be replaced.
        StorageFailed: the bucket does not exist, or the object store cannot be reached or refuses.
    """
    found = sealed_stat(address)
    if found is None:  # listing raises if the bucket does not exist
        next(Objects(address).names(), None)
    if found is not None and not overwrite:
        raise Conflict(f"{address} exists already; choose another address or ask for it to be overwritten")
    return found


def discard_remote(address: str) -> None:
    """Remove a store, its checkpoint and everything else below ``address``, the seal first.  Raises StorageFailed.

    The caller makes sure that no solve uses the address; this function does not check it.
    """
    objects = Objects(address)
    objects.remove([SEAL, CHECKPOINT])
    objects.remove_all()
