"""Every kind of page in both widths and schemes: axe-core finds nothing, nothing sticks out, nothing is Python's."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Literal

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import Site
from tests.browser.kinds import ARRIVES, fail, fill
from tests.browser.test_dashboard import FOUND, PHONE, axe, fits  # noqa: F401 - axe is a fixture

pytestmark = [pytest.mark.browser, pytest.mark.beside]
LONG_SUM = """() => {
  const list = document.querySelector(".route");
  list.querySelector("b").textContent = "2,760,313.125";
  return list.scrollWidth <= list.clientWidth;
}"""
#: what the eye finds: a hint that its field cuts off, fields and buttons of a row that are not in line, a log whose
#: lines go on outside, a round mark on half a pixel, which is drawn flat
UNTIDY = """() => {
  const found = [], seen = (part) => part.offsetHeight > 1;
  const pen = document.createElement("canvas").getContext("2d");
  for (const field of [...document.querySelectorAll("input[placeholder]")].filter(seen)) {
    const style = getComputedStyle(field);
    pen.font = `${style.fontSize} ${style.fontFamily}`;
    const space = field.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    if (pen.measureText(field.placeholder).width > space) found.push(`cut off: ${field.placeholder}`);
  }
  for (const row of document.querySelectorAll("form.query")) {
    const parts = [...row.querySelectorAll("input, select, button")].filter(seen);
    const boxes = parts.map((part) => part.getBoundingClientRect());
    for (const one of boxes) for (const other of boxes) {
      const beside = one.top < other.bottom && other.top < one.bottom;
      const off = Math.abs(one.top - other.top) + Math.abs(one.bottom - other.bottom);
      if (beside && off > 1) found.push(`not in line: ${row.getAttribute("action")}`);
    }
  }
  for (const log of [...document.querySelectorAll("#lines")].filter(seen)) {
    if (log.scrollWidth > log.clientWidth) found.push("lines of the log go on outside");
  }
  for (const state of [...document.querySelectorAll(".state")].filter(seen)) {
    const { width, height } = getComputedStyle(state, "::before");
    if (parseFloat(width) % 1 || width !== height) found.push(`no circle: ${width} x ${height}`);
  }
  return [...new Set(found)];
}"""
#: Whether no colour is on its way from one scheme to the other: a background that is passes for one without contrast.
SETTLED = "document.getAnimations().every((one) => !(one instanceof CSSTransition) || one.playState !== 'running')"
LOW = "[...document.querySelectorAll('main button')].filter(b => b.offsetHeight && b.offsetHeight < 32).length"
#: what a template writes that got an object in the place of its words
_PYTHON = re.compile(r"<[a-z_]+ (?:method|object|function)|object at 0x|\bNone\b|\bNaN\b|undefined")
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
#: kinds that a page of an error answers
_ERRORS = {"nothing": 404, "deleted": 410, "graph-wrong": 200, "graph-refused": 507, "graph-cycle": 422}


@pytest.fixture(scope="module")
def kinds(site: Site) -> Iterator[dict[str, str]]:
    """The address of a page of each kind; a job that runs goes on running, at a twentieth of its speed."""
    found = fill(site) | fail(site)
    with slowed(site.runner()):
        yield found


@contextlib.contextmanager
def slowed(pid: int) -> Iterator[None]:
    """Let a process work in one of twenty moments only: somebody else needs the processor, or its work must not end."""
    over = threading.Event()

    def slow() -> None:
        with contextlib.suppress(ProcessLookupError):
            while not over.wait(0.05):
                os.kill(pid, signal.SIGSTOP)
                over.wait(0.95)
                os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=slow)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("device", ["desktop", "phone"])
def test_on_every_screen(
    visit: Callable[..., Page],
    kinds: dict[str, str],
    axe: str,  # noqa: F811
    device: str,
):
    # the policy would keep axe-core out; all other tests hold the pages to it
    screen = PHONE if device == "phone" else {}
    page = visit(bypass_csp=True, expected=("404", "410", "422", "507"), **screen)
    wrong, untidy = {}, set[str]()
    for kind, path in kinds.items():
        answer = page.goto(path)
        assert answer is not None
        assert answer.status == _ERRORS.get(kind, 200), kind
        for part in ARRIVES.get(kind, ()):
            page.locator(part).first.wait_for()
        untidy |= {f"{kind}: {each}" for each in page.evaluate(UNTIDY)}
        if kind == "api":
            page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
        for scheme in SCHEMES:
            page.emulate_media(color_scheme=scheme)
            assert fits(page), (kind, scheme)
            paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
            light = sum(int(part) for part in re.findall(r"\d+", paper)[:3]) > 3 * 128
            assert light == (scheme == "light"), kind
            if (device == "phone") == (scheme == "dark"):  # both widths and both schemes, each once: it takes seconds
                page.wait_for_function(SETTLED)
                page.evaluate(axe)
                if found := page.evaluate(FOUND):
                    wrong[kind] = found
        assert _PYTHON.search(page.locator("main").inner_text()) is None or kind == "api", kind
        assert kind != "job" or page.evaluate(LONG_SUM), "no digit of a running sum is cut off"
        assert device == "desktop" or kind != "home" or page.evaluate(LOW) == 0, "fingers find every button"
    assert not wrong
    assert not untidy
