"""What the reading process makes of a job request."""

from pathlib import Path

import pytest

from service.settings import Settings
from service.tasks import job_options
from storage.errors import LimitExceeded, NotFound
from tests.unit.service.support import small_graph


def test_sources_become_indices_and_one_that_is_named_twice_counts_once():
    options = job_options(small_graph(), {"sources": [30, "10", "30", 10]}, Settings(data_dir=Path("d")))
    assert options.sources == (2, 0)
    with pytest.raises(NotFound, match="31"):
        job_options(small_graph(), {"sources": [31]}, Settings())
    with pytest.raises(LimitExceeded, match="5 sources are named"):
        job_options(small_graph(), {"sources": [10] * 5}, Settings())


def test_budgets_are_no_larger_than_those_of_the_service():
    settings = Settings(memory=1000, threads=2)
    assert job_options(small_graph(), {"memory": 10, "threads": 8}, settings).memory == 10
    assert job_options(small_graph(), {"memory": 2000, "threads": 8}, settings).memory == 1000
    assert job_options(small_graph(), {"threads": 8}, settings).threads == 2
    assert job_options(small_graph(), {}, Settings()).memory is None
