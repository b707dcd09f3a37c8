"""The map of a result, in Chromium: a source by keyboard, the colours and the route that follow, a link that brings
back the view; in the light and the dark, on a desk and on a phone."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import Site
from tests.browser.test_dashboard import FOUND, PHONE, axe, fits  # noqa: F401 - axe is a fixture

pytestmark = [pytest.mark.browser, pytest.mark.beside]
Visit = Callable[..., Page]
SIDE = 12
#: how many colours the map has, and a number that is another for another picture
PICTURE = """() => {
  const { width, height } = document.getElementById("map");
  const copy = Object.assign(document.createElement("canvas"), { width, height }).getContext("2d");
  copy.drawImage(document.getElementById("map"), 0, 0);
  const pixels = new Uint32Array(copy.getImageData(0, 0, width, height).data.buffer);
  return [new Set(pixels).size, pixels.reduce((sum, pixel, k) => (Math.imul(sum, 31) + pixel + k) | 0, 7)];
}"""
#: whether the map has been drawn in the colours of a source: many shades, and no frame is awaited
DRAWN = f"(least) => ({PICTURE})()[0] > least"


def town(side: int) -> bytes:
    """A bent lattice of streets as GraphML of OSMnx: vertices 0 to side²-1, lengths in metres."""
    random.seed(4)
    spots = {
        i * side + j: (15.58 + (j + random.random() / 2) * 0.0016, 48.4 + (i + random.random() / 2) * 0.0011)
        for i in range(side) for j in range(side)
    }  # fmt: skip
    nodes = "".join(
        f'<node id="{v}"><data key="x">{x}</data><data key="y">{y}</data></node>' for v, (x, y) in spots.items()
    )
    ends = [(v, v + step) for v in spots for step in (1, side) if v + step in spots and (step > 1 or (v + 1) % side)]
    edges = "".join(
        f'<edge source="{a}" target="{b}"><data key="length">{metres(spots[a], spots[b])}</data></edge>'
        for pair in ends for a, b in (pair, pair[::-1])
    )  # fmt: skip
    keys = "".join(f'<key id="{name}" for="node" attr.name="{name}" attr.type="double"/>' for name in "xy")
    return (
        f'<?xml version="1.0"?><graphml xmlns="http://graphml.graphdrawing.org/xmlns">{keys}'
        '<key id="length" for="edge" attr.name="length" attr.type="double"/>'
        '<key id="crs" for="graph" attr.name="crs" attr.type="string"/>'
        f'<graph edgedefault="directed"><data key="crs">epsg:4326</data>{nodes}{edges}</graph></graphml>'
    ).encode()


def metres(one: tuple[float, float], other: tuple[float, float]) -> float:
    return round(math.hypot((one[0] - other[0]) * 73_800, (one[1] - other[1]) * 111_200))


@pytest.fixture(scope="module")
def mapped(site: Site) -> str:
    """A job whose result has coordinates."""
    graph = site.upload(town(SIDE), name="the town", filename="town.graphml")
    job = site.wait(site.submit(graph["id"], fresh=True)["id"])
    assert job["state"] == "successful", job
    return job["id"]


def open_map(page: Page, address: str) -> None:
    """Wait until the map shows its route, in colours."""
    page.goto(address)
    expect(page.locator("#map-facts")).to_contain_text("of 144 vertices are reached")
    page.wait_for_function(DRAWN, arg=100)


def picture(page: Page) -> int:
    """The picture, as a number, once it rests."""
    page.wait_for_timeout(400)
    return page.evaluate(PICTURE)[1]


def test_a_source_is_selected_by_keyboard_and_a_link_brings_back_the_view(site: Site, visit: Visit, mapped: str):
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    open_map(page, f"/jobs/{mapped}?source=0&target=143")
    read, canvas = page.locator("#map-read"), page.locator("#map")
    first = picture(page)
    canvas.focus()
    page.keyboard.press("ArrowRight")  # to the source itself
    page.keyboard.press("ArrowRight")
    expect(read).to_contain_text("0 → 1: ")
    page.keyboard.press("Enter")
    expect(read).to_contain_text("1 → 143: ")
    expect(page.locator("#source")).to_have_value("1")
    truth = site.http.get(f"/v1/jobs/{mapped}/path", params={"source": 1, "target": 143}).json()
    expect(read).to_contain_text(f"1 → 143: {truth['length']:,g} over {len(truth['weights'])} arcs")
    expect(page.locator("#answer .huge")).to_contain_text(f"over {len(truth['weights'])} arcs")
    assert "source=1&target=143" in page.url
    second = picture(page)
    assert second != first, "the colours are those of another source"
    page.keyboard.press("+")
    page.keyboard.press("Shift+ArrowUp")
    page.get_by_label("Classes up to").fill("300, 600, 1200")
    expect(page.locator("[data-legend] li")).to_have_text(
        ["up to 300", "up to 600", "up to 1,200", "farther, or no path"]
    )
    page.get_by_role("button", name="Copy the link").click()
    expect(page.locator("[data-shared]")).to_have_text("Copied.")
    link, shown = page.evaluate("navigator.clipboard.readText()"), picture(page)
    assert link == page.url
    assert "#map=" in link
    assert link.endswith("&classes=300,600,1200")
    colleague = visit()
    open_map(colleague, f"/jobs/{mapped}?source=0&target=143")
    assert picture(colleague) == first, "the same picture of the same view"
    stranger = visit(entered=False)
    stranger.goto(link)
    stranger.get_by_label("Key").fill(site.key)
    stranger.get_by_role("button", name="Log in").click()
    stranger.wait_for_url(link)  # after the login, too
    colleague.goto("/")
    colleague.goto(link)
    expect(colleague.locator("#map-facts")).to_contain_text("vertices are reached")
    assert colleague.locator("#map-read").inner_text().startswith("1 → 143: ")
    assert picture(colleague) == shown
    expect(colleague.get_by_label("Classes up to")).to_have_value("300, 600, 1200")


def test_the_mouse_moves_selects_and_colours(visit: Visit, mapped: str):
    page = visit()
    open_map(page, f"/jobs/{mapped}?source=0&target=143")
    read = page.locator("#map-read")
    whole = picture(page)
    page.locator("[data-follow]").uncheck()
    page.locator("#map").evaluate("part => part.scrollIntoView()")
    box = page.locator("#map").bounding_box()
    assert box
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(*middle)
    expect(read).to_have_text(re.compile(r"^0 → \d+: [\d,]+$"))
    vertex = read.inner_text().split()[2].rstrip(":")
    page.mouse.click(*middle)
    expect(page.locator("#source")).to_have_value(vertex)
    page.locator("[data-follow]").evaluate("box => box.click()")  # the page does not scroll
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + box["height"] / 3)
    expect(read).to_have_text(re.compile(r"^\d+ → 143: [\d,]+$"))
    assert not read.inner_text().startswith(f"{vertex} "), "it is told of the vertex under the pointer"
    page.wait_for_timeout(400)
    followed = picture(page)
    page.mouse.move(2, 2)
    expect(read).to_contain_text(f"{vertex} → 143: ")
    expect(read).to_contain_text("arcs")
    assert picture(page) != followed
    page.locator("[data-follow]").evaluate("box => box.click()")
    page.mouse.move(*middle)
    page.mouse.down()
    page.mouse.move(middle[0] + 90, middle[1] + 20, steps=4)
    page.mouse.up()
    assert page.locator("#source").input_value() == vertex, "to drag is not to select"
    page.wait_for_url("**#map=*")
    page.get_by_role("button", name="The whole network").click()
    page.wait_for_url(lambda url: "#" not in url)
    assert picture(page) != whole


@pytest.mark.parametrize("follows", [False, True])
def test_a_late_answer_does_not_speak_over_the_pointer(visit: Visit, mapped: str, follows: bool):
    page = visit()
    open_map(page, f"/jobs/{mapped}?source=0&target=143")
    read = page.locator("#map-read")
    page.locator("[data-follow]").set_checked(follows)
    page.locator("#map").evaluate("part => part.scrollIntoView()")
    box = page.locator("#map").bounding_box()
    assert box
    held: list[Route] = []
    page.route("**/path?**", lambda route: held.extend([route]))
    with page.expect_request("**/path?**"):
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + box["height"] / 3)
    selected = page.locator("#source").input_value()
    places = rf"(?!{selected} )\d+ → 143" if follows else rf"{selected} → (?!143:)\d+"
    pointed = re.compile(rf"^{places}: [\d,]+$")
    expect(read).to_have_text(pointed)
    said = read.inner_text()
    assert held
    for route in held:
        route.continue_()
    page.wait_for_timeout(500)
    assert read.inner_text() == said
    page.mouse.move(2, 2)
    expect(read).to_contain_text("arcs")


@pytest.mark.parametrize(("scheme", "screen"), [("light", {}), ("dark", PHONE)])
def test_a_map_on_every_screen(visit: Visit, mapped: str, axe: str, scheme: str, screen: dict):  # noqa: F811
    page = visit(color_scheme=scheme, bypass_csp=True, **screen)
    open_map(page, f"/jobs/{mapped}")
    page.get_by_role("button", name="In classes").click()
    expect(page.locator("[data-legend] li").last).to_have_text("farther, or no path")
    page.evaluate(axe)
    assert page.evaluate(FOUND) == []
    assert fits(page)
    page.get_by_label("Nearer on the map").focus()
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.id") == "map"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    pixel = page.evaluate("[...document.getElementById('map').getContext('2d').getImageData(1, 1, 1, 1).data]")
    assert (sum(pixel[:3]) > 3 * 128) == (scheme == "light"), "the paper of the map is that of the page"


def test_a_small_result_without_coordinates_has_a_network(site: Site, visit: Visit):
    ends = [(v, v + step) for v in range(36) for step in (1, 6) if v + step < 36 and (step > 1 or (v + 1) % 6)]
    graph = site.upload("".join(f"{a} {b} 1\n" for a, b in ends).encode(), name="no places", directed=False)
    job = site.wait(site.submit(graph["id"])["id"])
    page = visit()
    page.goto(f"/jobs/{job['id']}?source=0&target=35")
    expect(page.get_by_role("heading", name="The network")).to_be_visible()
    expect(page.get_by_text("The graph has no coordinates")).to_be_visible()
    expect(page.locator("#map-read")).to_contain_text("0 → 35: 10 over 10 arcs")
    page.wait_for_function(DRAWN, arg=8)
    page.locator("#map").focus()
    page.keyboard.press("ArrowDown")  # the cursor appears at the source
    expect(page.locator("#map-read")).to_have_text("From 0")
    for key in ("ArrowDown", "ArrowUp"):  # the lattice may be turned, so one of these has no vertex
        page.keyboard.press(key)
        if page.locator("#map-read").inner_text() != "From 0":
            break
    expect(page.locator("#map-read")).to_contain_text(re.compile(r"^0 → \d+: \d"))


def test_a_result_that_is_not_small_and_has_no_coordinates_has_no_map(site: Site, visit: Visit):
    graph = site.upload("".join(f"{k} {k + 1}\n" for k in range(1000)).encode(), name="a long line", directed=True)
    job = site.wait(site.submit(graph["id"])["id"])
    page = visit()
    page.goto(f"/jobs/{job['id']}")
    expect(page.get_by_role("heading", name="The matrix")).to_be_visible()
    assert page.locator("#map").count() == 0


def test_the_path_is_saved_as_a_line(site: Site, visit: Visit, mapped: str):
    page = visit()
    page.goto(f"/jobs/{mapped}?source=0&target=143")
    with page.expect_download() as waiting:
        page.get_by_role("link", name="GeoJSON").click()
    assert waiting.value.suggested_filename == "path.geojson"
    line = json.loads(waiting.value.path().read_text())
    truth = site.http.get(f"/v1/jobs/{mapped}/path", params={"source": 0, "target": 143}).json()
    assert line["properties"]["vertices"] == truth["vertices"]
    assert len(line["geometry"]["coordinates"]) == len(truth["vertices"])
