"""Makes the pictures of the page that docs/dashboard.md shows: ``python -m tests.browser.screenshots``.

A real service solves the example graphs, and Chromium photographs its pages.  With ``--all FOLDER`` every page is
photographed there in both widths and both colour schemes, for somebody to look at.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from pathlib import Path
from typing import Any, Final

from PIL import Image
from playwright.sync_api import Browser, FloatRect, Locator, Page, sync_playwright

from tests.browser.conftest import FLAGS, Site, chromium
from tests.browser.kinds import ARRIVES, fail, fill

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "docs" / "images"
WIDTHS: Final[dict[str, dict[str, Any]]] = {
    "desk": {"viewport": {"width": 1280, "height": 800}},
    "phone": {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True},
}
#: the pictures of the documents: page, width, scheme
SHOWN: Final = (
    ("home", "desk", "light"), ("graph", "desk", "light"), ("graph", "phone", "dark"), ("job", "desk", "light"),
    ("job", "desk", "dark"), ("api", "desk", "light"), ("map", "desk", "light"), ("map", "phone", "dark"),
)  # fmt: skip


#: the most pixels of a picture of a result from top to bottom on a desk, and the colours of a picture
HIGHEST: Final = 1690
COLOURS: Final = 256
#: pixels of paper round a part of a page
MARGIN: Final = 16


def photograph(page: Page, address: str, name: str, file: Path) -> None:
    """Wait until a page is whole, and write a picture of it."""
    page.goto(address)
    page.wait_for_load_state("networkidle") if name in ARRIVES else None
    for part in ARRIVES.get(name, ()):
        page.locator(part).first.wait_for()
    if name == "api":
        page.get_by_text("Try GET /v1/jobs/{job_id}/distance", exact=True).click()
        page.locator("#get_distance").evaluate("part => part.scrollIntoView()")
    if name == "map":
        page.wait_for_timeout(1000)
    clip = around(page.locator(".beside", has=page.locator("#map"))) if name == "map" else None
    picture = Image.open(io.BytesIO(page.screenshot(full_page=name != "api", clip=clip)))
    if name == "job" and picture.width > HIGHEST / 2:  # what follows is the plan and the log
        picture = picture.crop((0, 0, picture.width, HIGHEST))
    # red words are few, and should stay red
    method = Image.Quantize.MEDIANCUT if name == "map" else Image.Quantize.MAXCOVERAGE  # much of a map is paper
    kept = picture.convert("RGB").quantize(COLOURS, method, dither=Image.Dither.NONE)
    kept.save(file, optimize=True)


def around(part: Locator) -> FloatRect:
    """Return the box of a part of a page with the paper around it, which the page leaves at its edges."""
    box = part.bounding_box()
    assert box is not None, "the part is not on the page"
    return {"x": box["x"] - MARGIN, "y": box["y"] - MARGIN, "width": box["width"] + 2 * MARGIN,
            "height": box["height"] + MARGIN}  # fmt: skip


#: Pages that show a job while it runs or waits.
PASSING: Final = ("running", "waiting", "queue", "home")


def enter(browser: Browser, site: Site, width: str, scheme: str) -> Page:
    """Return a page of somebody who has logged in."""
    page = browser.new_context(base_url=site.url, color_scheme=scheme, **WIDTHS[width]).new_page()
    page.goto("/login")
    page.get_by_label("Key").fill(site.key)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(f"{site.url}/")
    return page


def main() -> None:
    """Make the pictures of the documents, or of all pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="photograph every page into this folder")
    parser.add_argument("--only", nargs="+", metavar="PAGE", help="photograph these pages and no others")
    asked = parser.parse_args()
    folder, only = asked.all, asked.only
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data, Site(Path(data) / "data") as site, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        pages = fill(site) | (fail(site) if folder else {})
        every = sorted(pages, key=lambda name: name not in PASSING)  # those first that are over in minutes
        wanted = SHOWN if folder is None else [(n, w, s) for n in every for w in WIDTHS for s in ("light", "dark")]
        for name, width, scheme in wanted:
            if only and name not in only:
                continue
            page = enter(browser, site, width, scheme)
            photograph(page, pages[name], name, (folder or FOLDER) / f"page-{name}-{width}-{scheme}.png")
            page.context.close()
        browser.close()


if __name__ == "__main__":
    main()
