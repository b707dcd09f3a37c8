"""What can be asked about stores and checkpoints in an object store without reading them.  Imports no NumPy."""

from __future__ import annotations

import re
from typing import Final

from storage.errors import Conflict
from storage.remote.objects import Objects, Stat

#: The object that says that a store is sealed, and which generation of it.
SEAL: Final = "zarr.json"
#: The object that says how far an unfinished solve has come, and in which generation; claims with a number have each
#: one of their own, below the folder.
CHECKPOINT: Final = "checkpoint.json"
_CHECKPOINTS: Final = "checkpoints/"
#: generations of claims with a number, and their checkpoints
_OF_CLAIM: Final = re.compile(r"(?:g|checkpoints/)([0-9]{20})[-.]")


def sealed_stat(address: str) -> Stat | None:
    """The seal of the store at ``address``; None if there is none.  StorageFailed."""
    return Objects(address).stat(SEAL)


def checkpoint_stat(address: str) -> Stat | None:
    """The newest checkpoint at ``address``; None if there is none.  StorageFailed."""
    objects = Objects(address)
    return objects.stat(newest_checkpoint(objects))


def checkpoint_name(claim: int) -> str:
    """The object of the checkpoint of a claim: it alone writes it, so whoever was overtaken changes nobody else's."""
    return f"{_CHECKPOINTS}{claim:020d}.json" if claim else CHECKPOINT


def newest_checkpoint(objects: Objects) -> str:
    """The object of the checkpoint of the claim with the highest number; there need be none.  StorageFailed."""
    return max(objects.names(_CHECKPOINTS), default=CHECKPOINT)


def claim_of(name: str) -> int:
    """The number of the claim that an object belongs to; 0 for those that have none."""
    found = _OF_CLAIM.match(name)
    return int(found[1]) if found else 0


def check_address(address: str, *, overwrite: bool) -> Stat | None:
    """The seal that may be replaced, or None.

    Raises:
        Conflict: there is a store, and it may not be replaced.
        StorageFailed: the bucket does not exist, or the object store cannot be reached or refuses.
    """
    found = sealed_stat(address)
    if found is None:  # which may be for want of the bucket
        next(Objects(address).names(), None)
    if found is not None and not overwrite:
        raise Conflict(f"{address} exists already; choose another address or ask for it to be overwritten")
    return found


def discard_remote(address: str) -> None:
    """Remove a store, its checkpoint and everything else below ``address``; the seal goes first.  StorageFailed.

    Nobody may be working there: it is not looked for.
    """
    objects = Objects(address)
    objects.remove([SEAL, CHECKPOINT])
    objects.remove_all()
