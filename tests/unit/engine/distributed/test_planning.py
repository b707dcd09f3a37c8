"""Which workers of a scheduler can do something together."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.distributed.dask_cluster import WorkerJoined
from engine.distributed.planning import gather
from storage.errors import InvalidRequest
from tests.spreading import worker_info


class Joined:
    """A scheduler with one worker of each of some devices."""

    address, refused = "toy", dict[str, str]()

    def __init__(self, *devices: str) -> None:
        self.news = [WorkerJoined(f"worker{k}", worker_info(device=device)) for k, device in enumerate(devices)]

    def events(self, wait: float) -> Iterator[WorkerJoined]:
        assert wait
        found, self.news = self.news, []
        yield from found

    def settled(self) -> bool:
        return not self.news


def test_workers_of_one_kind_are_taken() -> None:
    assert list(gather(Joined("cpu", "cuda", "cpu"), "cpu")) == ["worker0", "worker2"]  # type: ignore[arg-type]
    assert list(gather(Joined("cpu", "cuda"), "auto")) == ["worker1"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("there", "wanted", "says"),
    [("cuda", "cpu", "all 1 workers .* compute on GPUs"), ("cpu", "cuda", "none of the 1 workers .* has a GPU")],
)
def test_if_there_are_none_of_the_kind_the_message_says_which_there_are(there: str, wanted: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        gather(Joined(there), wanted)  # type: ignore[arg-type]
