"""The page as people use it, in Chromium: submit, watch, query, cancel, fail; by keyboard, on a phone, in the dark."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import Site, missing

pytestmark = [pytest.mark.browser, pytest.mark.beside]
Visit = Callable[..., Page]
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
RING = sum(k % 7 + 1 for k in range(300))
#: how many colours the picture has
COLOURS = """() => {
  const canvas = document.getElementById("heat");
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  return new Set(new Uint32Array(data.buffer)).size;
}"""
#: the outline of what has the focus; that of a hidden file field is round its label
OUTLINE = """() => {
  const active = document.activeElement;
  return getComputedStyle(active.id === "file" ? active.previousElementSibling : active).outlineStyle;
}"""
#: what axe-core finds: rule, where, why
FOUND = """() => axe.run().then((report) => report.violations.flatMap(
  (rule) => rule.nodes.map((node) => `${rule.id}: ${node.target}: ${node.failureSummary}`)))"""


@pytest.fixture(scope="module")
def solved(site: Site) -> str:
    """A job that was solved: the ring of ``graph_file``."""
    lines = "\n".join(f"v{k:03} v{(k + 1) % 300:03} {k % 7 + 1}" for k in range(300))
    graph = site.upload(f"{lines}\nw v000 1\n".encode(), directed=True, name="the ring")
    job = site.wait(site.submit(graph["id"], fresh=True)["id"])
    assert job["state"] == "successful", job
    return job["id"]


@pytest.fixture
def slow(site: Site) -> Iterator[str]:
    """A graph whose rounds take a while; jobs that are left over are cancelled."""
    lines = "\n".join(f"{k} {(k + 1) % 6000} {k % 7 + 1}" for k in range(6000))
    yield site.upload(lines.encode(), directed=True, name="slow")["id"]
    for job in site.http.get("/v1/jobs", params={"state": "running"}).json()["jobs"]:
        site.http.post(f"/v1/jobs/{job['id']}/cancel")
        site.wait(job["id"])


@pytest.fixture(scope="module")
def axe() -> str:
    """The script of axe-core, as its package in the lock brings it."""
    if (found := find_spec("axe_playwright_python")) is None or found.origin is None:
        missing("there is no axe-playwright-python: ./dev setup installs it")
    return Path(found.origin).with_name("axe.min.js").read_text(encoding="utf-8")


def fits(page: Page) -> bool:
    """Whether nothing sticks out to the side."""
    return page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_the_printed_link_lets_in_once_and_leaves_no_trace(site: Site, visit: Visit):
    page = visit(entered=False)
    page.goto("/login")
    page.evaluate("link => { location.href = link; }", site.link)  # in the same tab only the part behind the # changes
    page.wait_for_url(f"{site.url}/")
    expect(page.get_by_role("heading", name="Devices")).to_be_visible()
    assert page.evaluate("document.cookie") == "", "no script reads the session"
    page.go_back()
    assert "#" not in page.url
    page.goto("/")
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/login")
    again = visit(entered=False, expected=("403",))
    again.goto(site.link, wait_until="commit")
    expect(again.get_by_role("alert")).to_contain_text("was used")


def test_submit_watch_and_query(site: Site, visit: Visit, graph_file: Path):
    page = visit()
    page.get_by_label("Drop a graph file here").set_input_files(graph_file)
    page.wait_for_url("**/graphs/*")
    main = page.locator("main")
    for words in ("301", "vertices", "arcs, one way", "km", "1 to 7", "1 parallel arcs", "1 loops"):
        expect(main).to_contain_text(words)
    expect(page.locator("#estimate")).to_contain_text("time, predicted")
    page.get_by_text("Options", exact=True).click()
    page.get_by_label("No farther than").fill("1196")
    expect(page.locator("#estimate")).to_contain_text("beyond the cutoff")
    page.get_by_label("Numbers are kept as").select_option("int32")
    expect(page.locator("#estimate")).to_contain_text("kept as int32")
    page.get_by_role("button", name="Solve these pairs").click()
    page.wait_for_url("**/jobs/*")
    expect(page.locator("#job")).to_have_attribute("data-state", "successful")
    expect(page.get_by_role("heading", name="The result")).to_be_visible()
    expect(page.locator("#eccentricities")).to_contain_text("Most remote")
    expect(page.locator("#answer .huge")).to_contain_text("over")  # a path is shown before somebody asks
    page.get_by_label("From", exact=True).fill("v002")
    page.get_by_label("To", exact=True).fill("v001")
    page.get_by_role("button", name="Find path").click()
    expect(page.locator("#answer .huge")).to_contain_text(f"{RING - 2:,} of km over 299 arcs")
    expect(page.locator("#answer")).to_contain_text("288 stops between")
    page.get_by_label("To", exact=True).fill("nobody")
    page.keyboard.press("Enter")
    expect(page.locator("#answer")).to_contain_text("nobody")
    page.get_by_label("To", exact=True).fill("v29x")
    expect(page.locator("#names-target option")).to_have_count(0)
    page.get_by_label("To", exact=True).fill("29")
    expect(page.locator("#names-target option")).to_have_count(8)
    page.get_by_label("To", exact=True).fill("v29x")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="v002 → v29", exact=False).first.click()
    expect(page.locator("#answer .huge")).to_contain_text("arcs")
    page.get_by_label("To", exact=True).fill("w")
    page.keyboard.press("Enter")
    expect(page.locator("#answer")).to_contain_text("no path")


def test_progress_comes_by_itself_and_a_job_is_cancelled(site: Site, visit: Visit, slow: str):
    page = visit()
    streams = []
    page.on("request", lambda request: request.url.endswith("/events") and streams.append(request.url))
    job = site.submit(slow, algorithm="blocked-floyd-warshall", dtype="float64", threads=1)["id"]
    page.goto("/")
    row = page.locator(".job", has_text="slow").first
    expect(row.locator("progress")).to_be_visible()
    row.get_by_role("link", name="slow").click()
    page.wait_for_url(f"**/jobs/{job}")
    expect(page.locator(".phases [aria-current]")).to_be_visible()
    bar = page.locator("#bar")
    first = float(bar.get_attribute("value") or 0)
    page.wait_for_function("first => Number(document.getElementById('bar').value) > first", arg=first)
    expect(page.locator("#facts .state")).to_have_text("running")
    expect(page.locator("#live")).to_contain_text("a second")
    expect(page.locator("#lines")).to_contain_text("phase relax")
    assert streams
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#job")).to_have_attribute("data-state", "dismissed")
    expect(page.get_by_role("link", name="Submit again")).to_be_visible()
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete").click()
    page.wait_for_url(f"{site.url}/")
    assert site.http.get(f"/v1/jobs/{job}").status_code == 410


def test_without_events_the_page_asks_from_time_to_time(site: Site, visit: Visit, slow: str):
    page = visit(expected=("ERR_FAILED",))
    page.route("**/events", lambda route: route.abort())
    job = site.submit(slow, algorithm="blocked-floyd-warshall", dtype="float64", threads=1, fresh=True)["id"]
    page.goto(f"/jobs/{job}")
    expect(page.locator(".phases [aria-current]")).to_be_visible()
    site.http.post(f"/v1/jobs/{job}/cancel")
    expect(page.locator("#job")).to_have_attribute("data-state", "dismissed")


def test_the_picture_is_of_the_matrix_and_can_be_walked(site: Site, visit: Visit, solved: str):
    page = visit()
    tiles = []
    page.on("response", lambda answer: "/zarr/distances/c/" in answer.url and tiles.append(answer.status))
    page.goto(f"/jobs/{solved}")
    expect(page.locator("#heat-what")).to_contain_text("every entry, from whole tiles")
    assert tiles == [200] * 5
    assert page.evaluate(COLOURS) > 100
    page.get_by_role("button", name="Nearer", exact=True).click()
    expect(page.locator("#heat-what")).to_contain_text("rows 75 to 225")
    canvas = page.locator("#heat")
    canvas.focus()
    page.keyboard.press("0")
    expect(page.locator("#heat-what")).not_to_contain_text("rows")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#heat-read")).to_contain_text(re.compile(r"v\d+ → v\d+: \d"))
    source, target, distance = re.match(r"(v\d+) → (v\d+): ([\d,]+)", page.locator("#heat-read").inner_text()).groups()
    page.keyboard.press("Enter")
    expect(page.locator("#answer .huge")).to_contain_text(re.compile(rf"^{distance} .*over"))
    truth = site.http.get(f"/v1/jobs/{solved}/distance", params={"source": source, "target": target}).json()
    assert truth["distance"] == int(distance.replace(",", ""))


def test_colours_span_what_is_shown_and_the_legend_says_so(visit: Visit, solved: str):
    page = visit()
    page.goto(f"/jobs/{solved}")
    expect(page.locator("#heat-what")).to_contain_text("every entry, from whole tiles")
    expect(page.locator("[data-least]")).to_have_text("0")
    expect(page.locator("[data-colours]")).to_be_empty()
    page.locator("#heat").focus()
    for key, times in (("ArrowUp", 12), ("ArrowRight", 12), ("+", 3)):  # to the corner, where all is far
        for _ in range(times):
            page.keyboard.press(key)
    expect(page.locator("[data-colours]")).to_contain_text("of 0 to 1,196 in the whole matrix")
    assert int(page.locator("[data-least]").inner_text().replace(",", "")) > 700
    page.get_by_label("Spread the colours").uncheck()
    expect(page.locator("[data-least]")).to_have_text("0")
    expect(page.locator("[data-colours]")).to_be_empty()


def test_a_damaged_tile_is_no_picture(site: Site, visit: Visit, solved: str):
    page = visit()

    def damage(route) -> None:
        answer = route.fetch()
        body = bytearray(answer.body())
        body[100] ^= 1
        route.fulfill(response=answer, body=bytes(body))

    page.route("**/zarr/distances/c/**", damage)
    page.goto(f"/jobs/{solved}")
    expect(page.locator("#heat-what")).to_contain_text("tile 0/0 is damaged")


def test_what_is_wrong_with_a_file_is_said_where_it_was_dropped(visit: Visit, tmp_path: Path):
    page = visit(expected=("422", "404"))
    broken = tmp_path / "broken.csv"
    broken.write_text("from,to,km\n1,2,three\n")
    page.get_by_label("Drop a graph file here").set_input_files(broken)
    alert = page.locator("#drop").get_by_role("alert")
    expect(alert).to_contain_text("three")
    expect(alert).to_contain_text("line 2")
    cycle = tmp_path / "cycle.csv"
    cycle.write_text("from,to,km\n1,2,3\n2,1,-9\n")
    page.get_by_label("Drop a graph file here").set_input_files(cycle)
    page.wait_for_url("**/graphs/*")
    expect(page.locator("#estimate").get_by_role("alert")).to_contain_text("negative cycle")
    expect(page.get_by_role("button", name="Solve all pairs")).to_be_disabled()
    for path in ("/jobs/01a1ff00-0000-7000-8000-000000000000", "/nothing/here"):
        page.goto(path)
        expect(page.get_by_role("heading", name="Not found")).to_be_visible()


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_a_button_that_is_pressed_while_its_part_is_exchanged_is_clicked(site: Site, visit: Visit, by: str):
    """The estimate came between press and release and took the place of the button, so nothing happened."""
    graph = site.upload(b"pressed released 1\nreleased clicked 2\n", directed=True, name="pressed")["id"]
    page, held = visit(), list[Route]()
    page.route("**/graphs/*?**", lambda route: held.append(route))  # noqa: PLW0108 (it must be a function of Python)
    page.goto(f"{site.url}/graphs/{graph}")
    part = page.locator("#estimate")
    expect(part).to_have_attribute("aria-busy", "true")
    button = part.get_by_role("button", name="Solve all pairs")
    button.hover()
    button.focus()
    page.mouse.down() if by == "mouse" else page.keyboard.down("Space")
    with page.expect_response("**/graphs/*?**"):
        held[0].continue_()
    page.wait_for_timeout(300)
    expect(part).to_contain_text("Not estimated yet")  # as it was when the button was pressed
    page.mouse.up() if by == "mouse" else page.keyboard.up("Space")
    page.wait_for_url("**/jobs/*")


def test_a_dropped_file_and_names_that_would_be_markup(visit: Visit):
    page = visit()
    page.evaluate(
        """() => {
          const evil = "<img/src=x/onerror=window.hurt=1><script>window.hurt=1</script>";
          const dataTransfer = new DataTransfer();
          const lines = `a\\tb\\tkm\\n${evil}\\tb\\t1\\nb\\t${evil}\\t2\\n`;
          dataTransfer.items.add(new File([lines], `${evil}.tsv`));
          for (const type of ["dragenter", "dragover", "drop"]) {
            const event = new DragEvent(type, { dataTransfer, bubbles: true, cancelable: true });
            document.querySelector("main").dispatchEvent(event);
          }
        }"""
    )
    page.wait_for_url("**/graphs/*")
    expect(page.get_by_role("heading", level=1)).to_contain_text("onerror")
    page.get_by_role("button", name="Solve all pairs").click()
    page.wait_for_url("**/jobs/*")
    expect(page.locator("#job")).to_have_attribute("data-state", "successful")
    expect(page.locator("#heat-what")).to_contain_text("every entry")
    expect(page.locator("#eccentricities")).to_contain_text("onerror")
    page.locator("#heat").focus()
    page.keyboard.press("ArrowUp")
    expect(page.locator("#heat-read")).to_contain_text("onerror")
    page.keyboard.press("Enter")
    expect(page.locator("#answer")).to_contain_text("onerror")
    page.goto("/")
    expect(page.locator(".job").first).to_contain_text("onerror")
    assert page.evaluate("window.hurt") is None
    assert page.locator("main img").count() == 0


def test_with_the_keyboard_alone(site: Site, visit: Visit, graph_file: Path):
    page = visit(entered=False)
    page.on("filechooser", lambda _: None)  # from now on; when first asked for, a key pressed at once can be quicker
    page.goto("/")
    page.wait_for_url("**/login")
    page.keyboard.type(site.key)  # the field has the focus
    page.keyboard.press("Enter")
    page.wait_for_url(f"{site.url}/")

    def tab_to(selector: str) -> None:
        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("s => document.activeElement.matches(s)", selector):
                assert page.evaluate(OUTLINE) != "none", f"the focus on {selector} can be seen"
                return
        raise AssertionError(f"no way to {selector}")

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    tab_to("#file")
    with page.expect_file_chooser() as chooser:
        page.keyboard.press("Enter")
    chooser.value.set_files(graph_file)
    page.wait_for_url("**/graphs/*")
    expect(page.locator("#estimate")).to_contain_text("time, predicted")
    tab_to("button.main")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/*")
    expect(page.locator("#job")).to_have_attribute("data-state", "successful")
    tab_to("#source")
    page.keyboard.type("v000")
    tab_to("#target")
    page.keyboard.type("v001")
    page.keyboard.press("Enter")
    expect(page.locator("#answer .huge")).to_contain_text("1 of km over 1 arc")


def test_jobs_are_found_and_the_queue_is_emptied(site: Site, visit: Visit, slow: str):
    for k in range(13):
        site.submit(slow, algorithm="blocked-floyd-warshall", dtype="float64", threads=1, fresh=True, name=f"wish {k}")
    page = visit()
    expect(page.locator("#waiting")).to_contain_text("these go next")
    expect(page.locator("[aria-labelledby=waiting] .job")).to_have_count(10)
    expect(page.locator("[aria-labelledby=waiting] .job").first).to_contain_text("next")
    page.get_by_label("Find jobs").fill("WISH 7")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs?q=WISH+7*")
    expect(page.locator("main .job .name")).to_have_text(["wish 7"])
    page.get_by_label("Find jobs").fill("")
    page.get_by_label("State").select_option("accepted")
    page.get_by_role("button", name="Find").click()
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Cancel all").click()
    page.wait_for_url(f"{site.url}/")
    expect(page.locator("#waiting")).to_have_count(0)


def test_what_has_not_come_yet_does_not_look_like_no_path(visit: Visit, solved: str):
    page = visit()
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/sample?*", hold)
    page.goto(f"/jobs/{solved}")
    background = "getComputedStyle(document.querySelector('#heat')).backgroundImage"
    page.wait_for_function("document.querySelector('#heat-help') !== null")
    while not held:
        page.wait_for_timeout(50)
    assert page.evaluate(background) == "none"
    for route in held:
        route.continue_()
    page.unroute("**/sample?*")
    expect(page.locator("#heat-what")).to_contain_text("every entry")
    assert "gradient" in page.evaluate(background)


def test_a_route_is_drawn_to_scale(visit: Visit, solved: str):
    page = visit()
    page.goto(f"/jobs/{solved}?source=v000&target=v004")
    picture = page.get_by_role(
        "img", name=re.compile("5 stops on a line of length 10, .* the longest arc, 4, is from v003 to v004")
    )
    expect(picture).to_be_visible()
    places = picture.locator("line:has(title)").evaluate_all("lines => lines.map((line) => +line.getAttribute('x1'))")
    assert places == [0, 72, 216, 432, 720]
    assert fits(page)


def test_requests_are_tried_on_the_page_of_the_api(site: Site, visit: Visit, solved: str):
    page = visit()
    page.get_by_role("link", name="API", exact=True).first.click()
    page.get_by_text("Try GET /v1/jobs/{job_id}/distance", exact=True).click()
    form = page.locator("form[data-path='/v1/jobs/{job_id}/distance']")
    for name, value in (("job_id", solved), ("source", "v002"), ("target", "v001")):
        form.locator(f"[name='{name}']").fill(value)
    page.keyboard.press("Enter")
    expect(form.locator("[role=status]")).to_contain_text("200")
    expect(form.get_by_label("The answer")).to_contain_text(f'"distance": {RING - 2}')
    expect(form.get_by_label("What was sent")).to_contain_text(f"/v1/jobs/{solved}/distance?source=v002&target=v001")
    page.get_by_text("Try POST /v1/jobs/{job_id}/distances", exact=True).click()
    form = page.locator("form[data-path='/v1/jobs/{job_id}/distances']")
    form.get_by_label("job_id").fill(solved)
    form.get_by_label("Body").fill('{"pairs": [["v000", "v001"], ["v001", "w"]]}')
    form.get_by_role("button", name="Send POST").click()
    expect(form.get_by_label("The answer")).to_contain_text("null")


def test_code_can_be_copied(visit: Visit, solved: str):
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    page.goto(f"/jobs/{solved}")
    for name, words in (("python", "apsp.Client("), ("curl", "curl"), ("xarray", "open_zarr")):
        page.locator(f"[data-copy=code-{name}]").click()
        expect(page.locator(f"[data-copy=code-{name}]")).to_have_text("Copied")
        copied = page.evaluate("navigator.clipboard.readText()")
        assert words in copied
        assert solved in copied
        assert "apsp_…" in copied or "APSP_KEY" in copied, "no key is shown"
    page.goto(f"/jobs/{solved}?source=v000&target=v003")
    page.get_by_role("button", name="Copy as a table").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.split("\n") == ["vertex\tweight\tdistance", "v000\t\t0", "v001\t1\t1", "v002\t2\t3", "v003\t3\t6", ""]
