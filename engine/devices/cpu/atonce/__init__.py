"""Searches of a short solve in one compiled call, on threads that Python does not know, and the kernels that they
run.
"""

import sys
from typing import Final

#: Whether the system has the threads and semaphores that are used.
AVAILABLE: Final = sys.platform == "linux"
