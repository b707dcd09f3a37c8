"""Whole objects below one address of an S3-compatible store, such as ``s3://bucket/prefix``.

This is the only module that imports obstore, and it imports no NumPy.  An object appears whole or not at all.
``create`` and ``replace`` are conditional (If-None-Match, If-Match), so that one of several writers succeeds and all
others get Conflict.  Credentials, region and endpoint come from the environment (``AWS_ACCESS_KEY_ID``, ``AWS_REGION``,
``AWS_ENDPOINT_URL`` ...).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from storage.errors import Conflict, InvalidRequest, NotFound, StorageFailed
from storage.threads import in_threads

if TYPE_CHECKING:
    from obstore.store import S3Store

SCHEME: Final = "s3://"
#: Number of objects (of 2 MiB each, for example) that are sent or fetched at the same time, so that waiting for answers
#: takes little of the time.
THREADS: Final = 16
#: Larger files are sent in parts of this many bytes.
PART_BYTES: Final = 64 << 20
_BUCKET: Final = re.compile(r"s3://([a-z0-9][a-z0-9.\-]{1,61}[a-z0-9])((?:/[^/?#]+)*)/?")
_RETRIES: Final = 4
_PATIENCE: Final = timedelta(seconds=60)

T = TypeVar("T")


def is_address(place: object) -> bool:
    """Return whether ``place`` is an address in an object store, and not a path."""
    return str(place).startswith(SCHEME)


def address_of(place: object) -> str | None:
    """Return ``place`` as an address, even if it was converted to a path and so lost a slash (``s3:/``); None for a
    path.
    """
    text = str(place)
    if text.startswith("s3:/") and not is_address(text):
        text = text.replace("s3:/", SCHEME, 1)
    return text if is_address(text) else None


@dataclass(frozen=True)
class Stat:
    """Size of an object in bytes, its entity tag, and its last change in seconds since the epoch."""

    size: int
    tag: str | None
    modified: float


class Objects:
    """The objects below an address; safe to use from many threads.

    Args:
        address: ``s3://BUCKET/PREFIX``; the bucket must exist.

    Raises:
        InvalidRequest: the address is malformed, or the client library is not installed.
    """

    def __init__(self, address: str) -> None:
        parts = _BUCKET.fullmatch(address)
        if parts is None:
            raise InvalidRequest(f"{address!r} is no address of objects: s3://BUCKET/PREFIX", field="store")
        self._bucket, self._prefix = parts[1], parts[2].strip("/")
        self.address = f"{SCHEME}{self._bucket}" + (f"/{self._prefix}" if self._prefix else "")
        self._store = _client(self._bucket)

    def below(self, *names: str) -> Objects:
        """Return the objects below a longer address, which is this address with ``names`` appended."""
        return Objects("/".join([self.address, *names]))

    def read(self, name: str) -> bytes:
        """Return a whole object.

        Raises:
            NotFound: there is no object of that name.
            StorageFailed: the store cannot be reached or refuses.
        """
        return self._guarded("read", name, lambda: bytes(self._store.get(self._key(name)).bytes()))

    def stat(self, name: str) -> Stat | None:
        """Return size, entity tag and time of an object; None if it does not exist.  Raises StorageFailed."""
        try:
            found = self._guarded("look at", name, lambda: self._store.head(self._key(name)))
        except NotFound:
            return None
        return Stat(found["size"], found["e_tag"], found["last_modified"].timestamp())

    def write(self, name: str, data: bytes) -> None:
        """Put an object; it replaces an object of the same name.  Raises StorageFailed."""
        try:
            self._store.put(self._key(name), data, use_multipart=False)
        except Exception as error:
            raise self._failure("write", name, error) from error

    def create(self, name: str, data: bytes) -> None:
        """Put an object under a name that no object has yet.

        Raises:
            Conflict: there is an object of that name already.
            StorageFailed: the store cannot be reached or refuses.
        """
        self._conditional(name, data, lambda: self._store.put(self._key(name), data, mode="create"))

    def replace(self, name: str, data: bytes, tag: str) -> None:
        """Replace an object if it still has this entity tag.

        Args:
            name: the name of the object.
            data: the new content.
            tag: the entity tag that the object must have now.

        Raises:
            Conflict: the object was replaced or removed meanwhile.
            StorageFailed: the store cannot be reached or refuses.
        """
        self._conditional(name, data, lambda: self._store.put(self._key(name), data, mode={"e_tag": tag}))

    def check_conditions(self) -> None:
        """Check that the object store honours conditional puts, by trying puts on a test object whose conditions do not
        hold.

        If an object store ignores conditions, two writers may both succeed, so that one replaces the seal of the other.

        Raises:
            StorageFailed: the store ignores conditions, cannot be reached, or refuses.
        """
        name = f"conditions-{os.urandom(8).hex()}"  # not ``secrets``: it imports OpenSSL, which delays commands
        tries: dict[str, Callable[[], None]] = {
            "If-None-Match": partial(self.create, name, b"second"),
            "If-Match": partial(self.replace, name, b"third", '"another"'),
        }
        self.create(name, b"first")
        try:
            for header, put in tries.items():
                try:
                    put()
                except Conflict:
                    continue
                raise StorageFailed(
                    f"the object store of {self.address} ignores {header} of a put, and a seal needs it: of two that "
                    "finish, one has to fail; docs/object-storage.md says which servers take it"
                )
        finally:
            self.remove([name])

    def names(self, prefix: str = "") -> Iterator[str]:
        """Return the names of objects below ``prefix``, which is empty or ends with a slash.  Raises StorageFailed."""
        return (name for name, _ in self._list(prefix))

    def total(self, prefix: str = "") -> int:
        """Return the bytes of all objects below ``prefix``.  Raises StorageFailed."""
        return sum(size for _, size in self._list(prefix))

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects; those that do not exist count as removed.  Raises StorageFailed."""
        keys = [self._key(name) for name in names]
        if keys:
            self._guarded("remove", f"{len(keys)} objects", lambda: self._store.delete(keys))

    def remove_all(self, prefix: str = "") -> None:
        """Remove all objects below ``prefix``.  Raises StorageFailed."""
        self.remove(list(self.names(prefix)))

    def send(self, files: Iterable[tuple[Path, str]]) -> None:
        """Write files as objects, several at a time; when this returns, all are written.  Raises StorageFailed."""

        def one(pair: tuple[Path, str]) -> None:
            path, name = pair
            try:
                if path.stat().st_size > PART_BYTES:  # in parts: the file may exceed the memory, or the limit of a put
                    self._guarded("write", name, lambda: self._store.put(self._key(name), path, chunk_size=PART_BYTES))
                    return
                data = path.read_bytes()
            except OSError as error:
                raise StorageFailed(f"cannot read {path}: {error.strerror or error}") from error
            self.write(name, data)

        each(one, files)

    def fetch(self, name: str, path: Path) -> None:
        """Copy an object of any size into a new file.  Raises NotFound, StorageFailed, and OSError of the file."""
        found = self._guarded("read", name, lambda: self._store.get(self._key(name)))
        with path.open("wb") as file:
            parts = iter(found.stream(min_chunk_size=PART_BYTES))
            while (part := self._guarded("read", name, lambda: next(parts, None))) is not None:
                file.write(part)

    def _list(self, prefix: str) -> Iterator[tuple[str, int]]:
        start = self._key(prefix)
        cut = len(self._prefix) + 1 if self._prefix else 0
        try:
            for page in self._store.list(start or None):
                for found in page:
                    yield found["path"][cut:], found["size"]
        except Exception as error:
            raise self._failure("list", prefix, error) from error

    def _key(self, name: str) -> str:
        return f"{self._prefix}/{name}".strip("/") if self._prefix else name.strip("/")

    def _conditional(self, name: str, data: bytes, put: Callable[[], object]) -> None:
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        try:
            put()
        except (AlreadyExistsError, PreconditionError):
            # If the object has the same content, the put has succeeded: the client library may have repeated it after a
            # lost answer.
            if self.stat(name) is None or self.read(name) != data:
                raise Conflict(f"{self.address}/{name} exists already, or was changed meanwhile") from None
        except Exception as error:
            raise self._failure("write", name, error) from error

    def _guarded(self, action: str, name: str, call: Callable[[], T]) -> T:
        try:
            return call()
        except FileNotFoundError:
            raise NotFound(f"there is no object {self.address}/{name}") from None
        except Exception as error:
            raise self._failure(action, name, error) from error

    def _failure(self, action: str, name: str, error: Exception) -> StorageFailed:
        what = str(error).partition("\n")[0][:400]
        return StorageFailed(f"cannot {action} {self.address}/{name}: {what}")


def each(call: Callable[[T], object], items: Iterable[T]) -> None:
    """Call ``call`` with every item, ``THREADS`` at a time; raise the first error once all running calls have ended."""

    def one(item: T) -> None:
        call(item)

    in_threads(THREADS, one, items)


@cache
def _client(bucket: str) -> S3Store:
    try:
        from obstore.store import S3Store
    except ImportError as error:
        message = "object storage needs a client that is not installed: pip install 'apsp[s3]'"
        raise InvalidRequest(message, field="store") from error
    endpoint = os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT_URL_S3") or ""
    return S3Store.from_url(
        f"{SCHEME}{bucket}",
        client_options={"allow_http": endpoint.startswith("http://"), "connect_timeout": "5s", "timeout": "120s"},
        retry_config={"max_retries": _RETRIES, "retry_timeout": _PATIENCE},
    )
