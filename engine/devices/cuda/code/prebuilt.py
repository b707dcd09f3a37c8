"""Archives of kernels that were compiled ahead, one for each architecture; kernels are found by a hash of their source.

An archive is a zip file.  The name of a member is the SHA-256 of everything that its code depends on: source text with
headers, options and architecture.  So kernels of an older source are never found.  A member begins with the SHA-256 of
its name and its code; a member that does not match this digest is ignored as damaged.

``building`` writes archives on a machine with a compiler, and this module reads them; neither needs cupy.
"""

from __future__ import annotations

import hashlib
import logging
import lzma
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final

from engine.devices.cuda.code.kernel_set import KERNELS, Arithmetic, forms, options, source

#: Compute capabilities for which machine code is built ahead of time.  A chip also runs code for an earlier minor
#: version of the same major version.
CAPABILITIES: Final = ((7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0))
#: The architecture of the PTX for all later chips; their driver turns it into machine code.
PTX: Final = "compute_100"
#: All architectures, as compilers name them.
ARCHITECTURES: Final = (*(f"sm_{major}{minor}" for major, minor in CAPABILITIES), PTX)

_FORMAT: Final = "apsp kernels 1"
_DIGEST: Final = hashlib.sha256().digest_size
_UNREADABLE: Final = (
    OSError, EOFError, ValueError, RuntimeError, NotImplementedError, zipfile.BadZipFile, lzma.LZMAError, zlib.error,
)  # fmt: skip
log = logging.getLogger("apsp.engine")


@dataclass(frozen=True)
class Module:
    """The result of one compilation, shared by kernels of one file that have the same options.

    Attributes:
        name: the first of these kernels, a key of ``KERNELS``.
        arithmetic: the arithmetic for which it is compiled.
    """

    name: str
    arithmetic: Arithmetic

    def key(self, architecture: str) -> str:
        """Return the SHA-256 of everything that the machine code for ``architecture`` depends on, in hexadecimal
        digits.
        """
        words = (_FORMAT, architecture, *options(self.name, self.arithmetic), source(KERNELS[self.name]))
        return hashlib.sha256("\0".join(words).encode()).hexdigest()


def all_modules() -> tuple[Module, ...]:
    """Return all modules that some kernel needs, each once."""
    return tuple({module.key(""): module for module in (Module(*form) for form in forms())}.values())


def folder() -> Path:
    """Return the folder of the archives that belong to this installation; it need not exist."""
    return Path(str(resources.files("engine") / "kernels" / "built"))


def architectures_of(capability: tuple[int, int]) -> Iterator[str]:
    """Yield the architectures whose code a chip can run, the best first.

    Args:
        capability: compute capability of the chip.
    """
    major, minor = capability
    yield from (f"sm_{a}{b}" for a, b in reversed(CAPABILITIES) if a == major and b <= minor)
    if capability > CAPABILITIES[-1]:
        yield PTX


def find(module: Module, capability: tuple[int, int], place: Path | None = None) -> tuple[str, bytes] | None:
    """Return the code of a module for a chip.

    Args:
        module: the module to find.
        capability: compute capability of the chip.
        place: folder of the archives; None for the folder that belongs to this installation.

    Returns:
        The architecture and the code; None if the module was not built ahead, or is damaged.
    """
    for architecture in architectures_of(capability):
        code = read((place or folder()) / f"{architecture}.zip", module.key(architecture))
        if code is not None:
            return architecture, code
    return None


def write_archive(path: Path, codes: Mapping[str, bytes], *, made_by: str) -> None:
    """Write an archive; the same codes always give the same bytes.

    Args:
        path: the path of the archive, in an existing folder; an existing archive is replaced atomically.
        codes: machine code by the key of its module.
        made_by: a note for people who open the archive: what compiled it.
    """
    draft = path.with_suffix(".draft")
    with zipfile.ZipFile(draft, "w", zipfile.ZIP_LZMA) as archive:
        archive.comment = made_by.encode()
        for key in sorted(codes):
            # a fixed date, so that the bytes do not depend on the day
            member = zipfile.ZipInfo(key, date_time=(1980, 1, 1, 0, 0, 0))
            member.compress_type = zipfile.ZIP_LZMA
            archive.writestr(member, _digest(key, codes[key]) + codes[key])
    draft.replace(path)
    _Archive.at.cache_clear()


def read(path: Path, key: str) -> bytes | None:
    """Return the code under ``key`` in the archive at ``path``; None where it is absent or damaged."""
    return _Archive.at(path).read(key)


def missing(modules: Iterable[Module], path: Path, architecture: str) -> list[Module]:
    """Return those of ``modules`` that the archive at ``path`` does not hold."""
    return [module for module in modules if read(path, module.key(architecture)) is None]


def _digest(key: str, code: bytes) -> bytes:
    return hashlib.sha256(key.encode() + code).digest()


class _Archive:
    """An archive that may be absent or damaged.  Made by :meth:`at`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.keys: frozenset[str] = frozenset()
        try:
            with zipfile.ZipFile(path) as archive:
                self.keys = frozenset(archive.namelist())
        except FileNotFoundError:
            pass
        except _UNREADABLE as error:
            log.warning("%s cannot be read (%s); its kernels are compiled instead", path, error)

    @staticmethod
    @cache
    def at(path: Path) -> _Archive:
        """Return the archive at ``path``, opened once per process."""
        return _Archive(path)

    def read(self, key: str) -> bytes | None:
        """Return the code under ``key``; None if it is absent or damaged."""
        if key not in self.keys:
            return None
        try:
            with zipfile.ZipFile(self._path) as archive:
                data = archive.read(key)
        except _UNREADABLE as error:
            data, said = b"", str(error)
        else:
            said = "its digest does not match"
        if data[:_DIGEST] == _digest(key, data[_DIGEST:]):
            return data[_DIGEST:]
        log.warning("a kernel in %s is damaged (%s) and is compiled instead", self._path, said)
        return None
