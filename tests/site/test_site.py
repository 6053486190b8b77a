"""Every page of build/site in Chromium, opened as a file: no error, no request, no overflow."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.site.browser import Browser, browser

SITE = Path(__file__).parents[2] / "build/site"
# A web server sends 404.html for any path, so its links begin at the root of the server.
PAGES = sorted({str(page.relative_to(SITE)) for page in SITE.rglob("*.html")} - {"404.html"})
WIDTHS = {"desktop": 1280, "phone": 360}
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
BROKEN = """<!doctype html><meta name=viewport content="width=device-width">
<img src="https://elsewhere.example/a.png">
<script>console.error("an error"); absent()</script>
<div style="width: 2000px">wide</div>
"""
SEARCH = """new Promise((resolve) => {
  const query = document.querySelector("[data-md-component=search-query]");
  query.focus();
  query.value = "endorsement";
  query.dispatchEvent(new Event("keyup", {bubbles: true}));
  query.dispatchEvent(new Event("input", {bubbles: true}));
  const found = () => document.querySelectorAll("a.md-search-result__link").length;
  const shown = () => found() ? resolve(found()) : setTimeout(shown, 100);
  shown();
})"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


def problems(tab: Browser, page: Path, width: int) -> list[str]:
    """Return what is wrong with a page at a width."""
    tab.open(page, width)
    wide = tab.evaluate(OVERFLOW)
    return [*tab.problems, *([f"{wide} px too wide"] if wide > 0 else [])]


@pytest.mark.parametrize("width", WIDTHS)
def test_pages_have_no_errors_no_requests_and_fit(tab: Browser, width: str) -> None:
    assert len(PAGES) > 50
    found = {page: problems(tab, SITE / page, WIDTHS[width]) for page in PAGES}
    assert {page: wrong for page, wrong in found.items() if wrong} == {}


def test_problems_of_a_page_are_found(tab: Browser, tmp_path: Path) -> None:
    page = tmp_path / "broken.html"
    page.write_text(BROKEN, encoding="utf-8")
    found = sorted(line.splitlines()[0] for line in problems(tab, page, WIDTHS["phone"]))
    kinds = [line.split(":")[0] for line in found if "px too wide" not in line]
    assert kinds == ["console", "exception", "log", "request"]
    assert any(line.endswith("px too wide") for line in found)


def test_search_finds_pages_without_a_web_server(tab: Browser) -> None:
    tab.open(SITE / "index.html", WIDTHS["desktop"])
    assert tab.evaluate(SEARCH) > 1
    assert tab.problems == []
