"""The page on scaling says what the planner's functions say."""

from pathlib import Path

import pytest

from benchmarks import scaling
from engine.planning.cost_distributed import in_rounds, times


def test_the_page_is_what_is_made():
    page = Path(scaling.__file__).parents[1] / "docs" / "scaling.md"
    assert page.read_text(encoding="utf-8") == scaling.page(), "python -m benchmarks.scaling > docs/scaling.md"


@pytest.mark.parametrize("n", scaling.SIZES)
def test_more_gpus_are_faster_until_panels_decide_and_never_better_than_in_proportion(n: int):
    found = []
    for gpus in (1, 8) if n <= 100_000 else (1, 8, 64):
        setting, workers = scaling.setting_of(n, gpus)
        streaming = in_rounds(setting, workers).streaming
        assert streaming is not None
        took = times(setting, workers, streaming)
        assert took.work >= n**3 / scaling.RATE / gpus
        found.append(took.seconds)
    assert found == sorted(found, reverse=True)
