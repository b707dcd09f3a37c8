"""Chromium before a real service that asks for keys; whatever its console or its policy complains of is an error."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from tests.integration.keyed_service import KeyedService
from tests.integration.service_process import USUAL_RUNNERS

REQUIRED = "APSP_REQUIRE_BROWSER"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
#: notes what the policy forbids, from the first moment of every page
_WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
});
"""


def missing(message: str) -> NoReturn:
    """Skip the test, or fail it if APSP_REQUIRE_BROWSER is 1, as in CI."""
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(message)
    pytest.skip(message)


def chromium() -> str:
    """Where Chromium is; the test is skipped where it is not, or fails if APSP_REQUIRE_BROWSER is 1, as in CI."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if (found := shutil.which(name)) is not None:
            return found
    missing("there is no Chromium (Debian: apt-get install chromium)")


class Site(KeyedService):
    """The service with its usual runners, and the link that it prints to let its owner in."""

    def __init__(self, data: Path, **settings: str) -> None:
        super().__init__(data, **{**USUAL_RUNNERS, **settings})

    def __enter__(self) -> Site:
        super().__enter__()
        assert self.process.stdout is not None
        self.link = self.process.stdout.readline().split()[-1]
        deadline = time.monotonic() + 180
        while self.http.get("/health/ready").status_code != 200:  # the runner compiles what it will need
            assert time.monotonic() < deadline
            time.sleep(0.2)
        return self


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    chromium()
    with Site(tmp_path_factory.mktemp("browser") / "data") as service:
        yield service


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = chromium()
    expect.set_options(timeout=60_000)  # machines that test are busy
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Browser, site: Site) -> Iterator[Callable[..., Page]]:
    """Opens a page of somebody who has logged in; ``options`` are those of a browser context.

    At the end no page may have complained: no violation of the policy, no error, nothing on the console but what holds
    one of the words that are ``expected``.
    """
    contexts, complaints, pages = [], [], []

    def open_page(*, entered: bool = True, expected: tuple[str, ...] = (), **options: Any) -> Page:
        context = browser.new_context(base_url=site.url, **options)
        context.set_default_timeout(60_000)
        context.add_init_script(_WATCH)
        page = context.new_page()

        def hear(said: ConsoleMessage) -> None:
            if not any(word in said.text for word in expected):
                complaints.append(f"console: {said.text}")

        page.on("console", hear)
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        contexts.append(context)
        pages.append(page)
        if entered:
            page.goto("/login")
            page.get_by_label("Key").fill(site.key)
            page.get_by_role("button", name="Log in").click()
            page.wait_for_url(f"{site.url}/")
        return page

    yield open_page
    for page in pages:
        complaints += page.evaluate("window.violations")
    for context in contexts:
        context.close()
    assert not complaints


@pytest.fixture
def graph_file(tmp_path: Path) -> Path:
    """A ring of 300 vertices called v000 and so on, weights 1 to 7, a loop, a parallel arc, and one vertex apart."""
    path = tmp_path / "ring.csv"
    lines = [f"v{k:03},v{(k + 1) % 300:03},{k % 7 + 1}" for k in range(300)]
    path.write_text("\n".join(["from,to,km", *lines, "v000,v001,99", "v005,v005,2", "w,v000,1"]) + "\n")
    return path
