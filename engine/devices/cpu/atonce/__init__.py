"""Searches of a short solve in one compiled call, on threads that never enter Python, and the kernels that they run."""

import sys
from typing import Final

#: Whether the system has the threads and semaphores that this package uses.
AVAILABLE: Final = sys.platform == "linux"
