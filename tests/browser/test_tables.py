"""A table of measures on the page, in Chromium: the rows come, their order changes by a press, a histogram is drawn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Site

pytestmark = [pytest.mark.browser, pytest.mark.beside]


@pytest.fixture(scope="module")
def measured(site: Site) -> str:
    """A job whose result is a table: a line of 60 vertices."""
    lines = "\n".join(f"{k} {k + 1} 1" for k in range(59))
    graph = site.upload(f"{lines}\n".encode(), directed=True, name="the line")
    asked = {"result": "measures", "measures": ["reached", "mean"], "within": [3, 10]}
    job = site.wait(site.submit(graph["id"], **asked)["id"])
    assert job["state"] == "successful", job
    return job["id"]


def test_a_table_is_sorted_paged_and_drawn(site: Site, visit: Callable[..., Page], measured: str):
    page = visit()
    page.goto(f"/jobs/{measured}")
    rows = page.locator("#table tbody tr")
    expect(rows).to_have_count(20)
    assert page.locator("#heat, #query, #eccentricities").count() == 0
    expect(rows.first).to_contain_text("59")  # reached of vertex 0
    page.get_by_role("link", name="within_3").click()
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("within_3")
    page.get_by_role("link", name="vertex").focus()
    page.keyboard.press("Enter")
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("vertex")
    expect(rows.first).to_contain_text("59")
    expect(page.locator("#sort-1")).to_be_focused()
    page.get_by_role("link", name="After").click()
    expect(page.locator("#rows-of-table")).to_contain_text("21 to 40 of 60")
    page.get_by_label("Column").select_option("mean")
    expect(page.locator("#histogram")).to_contain_text("mean")
    expect(page.locator("#table .chart rect").first).to_be_visible()
    expect(page.locator("#rows-of-table")).to_contain_text("21 to 40 of 60")
    assert page.url == f"{site.url}/jobs/{measured}", "the part changes, and not the page"
    with page.expect_download() as download:
        page.get_by_role("link", name="Parquet").click()
    assert pl.read_parquet(download.value.path()).height == 60


@pytest.mark.parametrize("width", [390, 1280])
def test_a_table_fits_and_works_without_a_script(site: Site, visit: Callable[..., Page], measured: str, width: int):
    page = visit(viewport={"width": width, "height": 800})
    page.goto(f"/jobs/{measured}")
    expect(page.locator("#table tbody tr")).to_have_count(20)
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    page.goto(f"/jobs/{measured}/table?sort=-reached&first=20")
    expect(page.locator("#rows-of-table")).to_contain_text("21 to 40 of 60")


@pytest.mark.parametrize(
    ("result", "field", "table", "told", "column"),
    [
        ("measures", "opportunities", "vertex,beds\n0,3\n2,5\n", "2 rows, beds", "beds_10"),
        ("flows", "demands", "origin,destination,cars\n0,59,7\n5,9,2\n", "2 rows, cars", "flow"),
    ],
)
def test_a_table_is_chosen_in_the_form(
    site: Site, visit: Callable[..., Page], tmp_path: Path, result: str, field: str, table: str, told: str, column: str
):
    lines = "\n".join(f"{k} {k + 1} 1" for k in range(59))
    graph = site.upload(f"{lines}\n".encode(), directed=True, name="the line")["id"]
    wrong, right = tmp_path / "wrong.csv", tmp_path / "right.csv"
    wrong.write_text("a\n1\n")
    right.write_text(table)
    page = visit(expected=("422",))
    page.goto(f"/graphs/{graph}?plan=1")
    page.get_by_text("Options", exact=True).click()
    assert not page.get_by_label("Measures").is_visible()
    page.get_by_label("Result").select_option(result)
    if result == "measures":
        page.get_by_label("Count within").fill("10")
    for file in (wrong, right):
        with page.expect_file_chooser() as chooser:
            page.get_by_role("button", name=f"Choose a file of {field}").click()
        chooser.value.set_files(file)
        expect(page.locator(f"#h-{field}")).to_contain_text("column" if file is wrong else told)
        assert (page.locator(f"#o-{field}").input_value() != "") == (file is right)
    expect(page.locator("#estimate")).to_contain_text("time, predicted")
    page.get_by_role("button", name="Start").click()
    page.wait_for_url("**/jobs/*")
    expect(page.locator("#job")).to_have_attribute("data-state", "successful")
    expect(page.locator("#table thead")).to_contain_text(column)
