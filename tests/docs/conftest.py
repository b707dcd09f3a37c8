"""A page whose long blocks run is not run without them, too."""

from __future__ import annotations

import pytest

SHORT, WHOLE = "test_a_page_does_what_it_says", "test_a_page_with_its_long_blocks"


@pytest.hookimpl(trylast=True)  # after the choice by marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the short run of each page whose whole run was chosen."""
    whole = {item.name.removeprefix(WHOLE) for item in items if item.name.startswith(WHOLE)}
    left_out = [item for item in items if item.name.startswith(SHORT) and item.name.removeprefix(SHORT) in whole]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
