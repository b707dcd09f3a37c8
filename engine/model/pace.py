"""Settings of a solve over workers that say how far its rounds overlap: how early later rounds may begin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Pace:
    """How far rounds overlap on a worker.

    Attributes:
        early: number of panels that may be closed before the last stripe has reached the round that uses them.
        ahead: tasks that a worker has at a time, queued or running, not counting the closing of panels.
        share: fraction of the worker's device that a task occupies; 1 means the whole device.
        task: the least seconds that a task should take.
        places: number of panels that a GPU has memory for.
        workspace: memory of a worker, in stripes, in addition to the stripes that it keeps: panels, the work space of
            closing a panel, and stripes in transit.
        pieces: panels and stripes in transit in the host memory of a worker with a GPU.
    """

    early: int
    ahead: int
    share: float
    task: float
    places: int
    workspace: int
    pieces: int


#: PROCESSORS: one task occupies all processors of a worker, and a second one waits.  RESIDENT, for GPUs that keep their
#: stripes: three tasks relax while a panel is closed, so that the device is busy between two tasks; panels are closed
#: early, because a panel takes longer than a round to reach the other workers.  PASSING, for GPUs that do not keep all
#: of their stripes: there is no memory for overlapping rounds, and the rate of the store decides the time, so the pivot
#: block has to be wide.
PROCESSORS: Final = Pace(early=2, ahead=2, share=1.0, task=0.5, places=0, workspace=7, pieces=0)
RESIDENT: Final = Pace(early=4, ahead=3, share=1 / 4, task=0.05, places=6, workspace=11, pieces=12)
PASSING: Final = Pace(early=2, ahead=2, share=1.0, task=0.5, places=2, workspace=4, pieces=6)
