"""How far ahead workers and the driver work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Pace:
    """How far rounds overlap on a worker.

    Attributes:
        early: panels that may be closed before the last stripe has come to where they are of use.
        ahead: tasks that a worker has at a time, panels to be closed apart.
        share: of its device that a task takes up; one means that it has it alone.
        task: seconds that a task should take at least.
        places: panels on a GPU.
        workspace: stripes that a worker's memory holds beside those that it keeps: panels, what closing one takes, and
            stripes on their way.
        pieces: panels and stripes on their way in host memory, of a worker with a GPU.
    """

    early: int
    ahead: int
    share: float
    task: float
    places: int
    workspace: int
    pieces: int


#: On processors a task has them alone, and another one waits.  On GPUs three relax while a panel is closed, so that the
#: time between two tasks is not lost, and a panel takes longer to reach the others than a round takes.  GPUs that
#: stripes pass through have no memory for that: there the width of the pivot block counts, and the store decides.
PROCESSORS: Final = Pace(early=2, ahead=2, share=1.0, task=0.5, places=0, workspace=7, pieces=0)
RESIDENT: Final = Pace(early=4, ahead=3, share=1 / 4, task=0.05, places=6, workspace=11, pieces=12)
PASSING: Final = Pace(early=2, ahead=2, share=1.0, task=0.5, places=2, workspace=4, pieces=6)
