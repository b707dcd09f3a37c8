"""A generation: the objects that one writer puts below the address of a store, and the conditional put that seals them.

``storage.remote.writer`` explains the objects below an address.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable
from pathlib import Path

from storage.errors import NotFound, StorageFailed
from storage.matrix.format import ROOT_DOCUMENT, group_document
from storage.remote.addresses import SEAL, check_address, claim_of
from storage.remote.objects import Objects, Stat

log = logging.getLogger(__name__)


class Generation:
    """The objects of one writer below an address; no other writer changes them.

    Attributes:
        objects: all objects below the address.
        name: name of the generation, the first part of the names of its objects.
        claim: number of the claim on the address, 0 for none.
    """

    def __init__(self, objects: Objects, before: Stat | None, claim: int = 0) -> None:
        """Choose a random name for the generation; nothing is written.

        Args:
            objects: the objects below the address.
            before: size, entity tag and time of the seal that may be replaced; None if there is no store.
            claim: number of the claim on the address, 0 for none.
        """
        self.objects, self._before, self.claim = objects, before, claim
        self.name = f"g{claim:020d}-{secrets.token_hex(4)}" if claim else f"g{secrets.token_hex(8)}"

    @classmethod
    def at(cls, address: str, *, overwrite: bool, claim: int = 0) -> Generation:
        """Return a new generation for an address.

        Args:
            address: where the store will be.
            overwrite: whether an existing store may be replaced.
            claim: number of the claim on the address, 0 for none.

        Raises:
            Conflict: there is a store, and it may not be replaced.
            StorageFailed: the object store cannot be reached, refuses, or has no such bucket.
        """
        return cls(Objects(address), check_address(address, overwrite=overwrite), claim)

    def send_folder(self, folder: Path, root: bytes, check_held: Callable[[], None]) -> None:
        """Send a whole folder, then its root document, and seal this generation.

        Args:
            folder: the files, without the root document.
            root: the root document, with the digest of the seal.
            check_held: raises StorageFailed if another process has taken the folder, because files may then be missing.

        Raises:
            Conflict: another store was sealed meanwhile.
            StorageFailed: the object store or the file system refused.
        """
        digest = str(json.loads(root)["attributes"]["seal"]["digest"])
        files = [path for path in folder.rglob("*") if path.is_file()]
        self.objects.send((path, f"{self.name}/{path.relative_to(folder).as_posix()}") for path in files)
        self.objects.write(f"{self.name}/{ROOT_DOCUMENT}", root)
        check_held()
        self.seal(digest)

    def seal(self, digest: str) -> None:
        """Seal this generation: put the object SEAL, which names the generation.  If an earlier store may be replaced,
        the put replaces the SEAL of that store.

        Args:
            digest: digest of the seal.

        Raises:
            Conflict: another store was sealed meanwhile.
            StorageFailed: the object store refused.
        """
        named = group_document({"apsp": {"generation": self.name, "digest": digest}})
        pointer = json.dumps(named, indent=1).encode()
        if self._before is None:
            self.objects.create(SEAL, pointer)
        else:
            self.objects.replace(SEAL, pointer, str(self._before.tag))

    def tidy(self) -> None:
        """Remove checkpoints and other generations, except those of later claims; failures are ignored, because objects
        that remain do no harm.
        """
        try:
            own = f"{self.name}/"
            others = (name for name in self.objects.names() if name != SEAL and not name.startswith(own))
            self.objects.remove(name for name in others if claim_of(name) <= self.claim)
        except StorageFailed as error:
            log.warning("what other solves left at %s stays there: %s", self.objects.address, error)

    def abandon(self) -> None:
        """Remove the objects of this generation, unless the seal names it; never raises.

        A put of the seal that failed because its answer was lost may have sealed this generation.
        """
        try:
            named = json.loads(self.objects.read(SEAL))["attributes"]["apsp"]["generation"] == self.name
        except NotFound:
            named = False
        except (StorageFailed, ValueError, KeyError, TypeError) as error:
            log.warning("what was sent to %s/%s stays there: %s", self.objects.address, self.name, error)
            return
        try:
            if not named:
                self.objects.remove_all(f"{self.name}/")
        except StorageFailed as error:
            log.warning("what was sent to %s/%s stays there: %s", self.objects.address, self.name, error)
