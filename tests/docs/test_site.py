"""The site builds without a warning, no link of it is broken, and nothing on it is fetched from elsewhere."""

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs.pages import ROOT, pages

#: What a browser loads by itself.
LOADS = {"img": "src", "script": "src", "iframe": "src", "source": "src", "link": "href"}


class Tags(HTMLParser):
    """Links, what is loaded, and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if found.get(LOADS.get(tag, "")) and found.get("rel") != "canonical":
            self.loaded.append(found[LOADS[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that tests side by side do not share a folder."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / "zensical.toml", folder)
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "build" / "site"


@pytest.fixture(scope="module")
def parsed(site: Path) -> dict[Path, Tags]:
    return {page: Tags(page.read_text(encoding="utf-8")) for page in site.rglob("*.html")}


def target(site: Path, page: Path, link: str) -> tuple[Path, str]:
    """The file that a link leads to, and the anchor in it."""
    parts = urlsplit(link)
    path = unquote(parts.path)
    found = (site / path.lstrip("/") if path.startswith("/") else page.parent / path) if path else page
    found = found.resolve()
    return (found / "index.html" if found.is_dir() else found), unquote(parts.fragment)


def test_every_page_is_in_the_navigation():
    """Whose code blocks are run, too; decisions are found by search and links."""
    there = {page for folder in ("docs", "docs/how-to") for page in (ROOT / folder).glob("*.md")}
    assert there - set(pages()) == set()


def test_every_page_is_built(site):
    for page in pages()[1:]:
        name = page.relative_to(ROOT / "docs").with_suffix("")
        place = site / ("index.html" if str(name) == "index" else f"{name}/index.html")
        assert place.is_file(), page


def test_no_link_is_broken(site, parsed):
    broken = []
    for page, tags in parsed.items():
        if page.name == "404.html":  # its links begin at the root of wherever the site is put
            continue
        for link in tags.links + tags.loaded:
            if urlsplit(link).scheme:
                continue
            file, anchor = target(site, page, link)
            if not file.is_file() or (anchor and file in parsed and anchor not in parsed[file].anchors):
                broken.append(f"{page.relative_to(site)}: {link}")
    assert broken == []


def test_nothing_is_fetched_from_elsewhere(site, parsed):
    loaded = {link for tags in parsed.values() for link in tags.loaded}
    assert loaded
    assert [link for link in loaded if urlsplit(link).scheme not in ("", "data") or link.startswith("//")] == []
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"url\(\s*['\"]?(?:https?:)?//[^)]*\)|@import[^;]*//[^;]*", styles) == []


def test_pictures_say_what_they_show(site):
    for page in site.rglob("*.html"):
        for image in re.findall(r"<img[^>]*>", page.read_text(encoding="utf-8")):
            if "images/logo.svg" in image:  # the link to the first page, whose name it bears
                continue
            assert re.search(r'alt="[^"]{10,}"', image), f"{page}: {image}"


def test_pages_are_named_by_links():
    """Names of pages are no code: they lead there."""
    named = re.compile(r"(?<!\[)`(?:docs/)?[a-z0-9/-]+\.md`(?!\])")
    for page in pages():
        text = re.sub(r"^[ ]*```.*?^[ ]*```[ ]*$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        found = [
            name for name in named.findall(text) if (ROOT / "docs" / name.strip("`").removeprefix("docs/")).exists()
        ]
        assert found == [], page
