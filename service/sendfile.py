"""What the protocol offers and the routes use: parts of answers that the kernel sends from a file."""

from __future__ import annotations

from typing import Final

#: name of the scope extension: an awaitable function (file descriptor, offset, count); see ``service.protocol``
SENDFILE: Final = "apsp.sendfile"
