"""A summary is counted once, however many ask for it, and what is kept has a bound."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from service.jobs import counting
from service.jobs.counting import SummaryCache
from service.settings import Settings
from storage.errors import LimitExceeded


def test_many_who_ask_at_once_are_answered_by_one_count() -> None:
    cache, counts, begun = SummaryCache(Settings()), list[float](), threading.Event()

    def count(most: float) -> tuple[float, dict[str, Any]]:
        counts.append(most)
        begun.wait(5)
        return 1.0, {"pairs": 2}

    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(cache.get("d", 3, count))) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert cache.known("d") is None
    begun.set()
    for thread in threads:
        thread.join()
    assert (found, counts, cache.known("d")) == ([{"pairs": 2}] * 4, [120.0], {"pairs": 2})


def test_an_error_is_not_kept_and_a_refusal_is() -> None:
    cache, asked = SummaryCache(Settings(answer_seconds=7)), list[float]()

    def fails(most: float) -> tuple[float, None]:
        asked.append(most)
        if len(asked) == 1:
            raise OSError
        return 1234.5, None

    with pytest.raises(OSError):  # noqa: PT011 - raised above
        cache.get("d", 3, fails)
    for _ in range(2):
        with pytest.raises(LimitExceeded, match=r"all 3 rows .* 1,23. processor seconds, and at most 7") as caught:
            cache.get("d", 3, fails)
        assert caught.value.setting == "APSP_ANSWER_SECONDS"
    assert asked == [7, 7]
    assert cache.known("d") is None


def test_the_oldest_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "_MOST", 2)
    cache = SummaryCache(Settings())
    for name in ("a", "b", "c"):
        cache.get(name, 1, lambda _, name=name: (0.0, {"of": name}))
    assert [cache.known(name) for name in ("a", "b", "c")] == [None, {"of": "b"}, {"of": "c"}]
    assert set(cache._counting) == {"b", "c"}
