"""Opens prepared graphs that were pickled: each process opens its own, and keeps the last few open for later tasks."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from storage.errors import Conflict
from storage.remote.objects import address_of

if TYPE_CHECKING:
    from engine.api.prepared_matrix import PreparedMatrix

#: Most prepared graphs that a process keeps open for further tasks that refer to them.
KEPT: Final = 2
_lock = threading.Lock()
_opened: OrderedDict[tuple[str, str], PreparedMatrix] = OrderedDict()


def reopened(path: str, digest: str) -> PreparedMatrix:
    """Return the prepared graph at a path or address, answered by processors; it is opened if it is not open yet.

    All unpickled objects of this process share it, so it must not be closed.

    Args:
        path: the folder, which must have the same path for this process, or the address.
        digest: the digest of the graph's seal when it was pickled.

    Raises:
        Conflict: there is another prepared graph at the path now.
        NotFound: there is nothing at the path.
        StorageFailed: the prepared graph is damaged.
    """
    from engine.api.prepared_matrix import PreparedMatrix, open_result

    with _lock:
        found = _opened.get((path, digest))
        if found is None:
            opened = open_result(address_of(path) or path)
            if opened.digest != digest or not isinstance(opened, PreparedMatrix):
                opened.close()
                raise Conflict(f"{path} was replaced; open it again")
            found = _opened[path, digest] = opened
        _opened.move_to_end((path, digest))
        while len(_opened) > KEPT:  # a graph that is still in use is closed when its last reference is gone
            _opened.popitem(last=False)
        return found
