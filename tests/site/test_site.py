"""Every page of build/site in Chromium, opened as a file: no error, no request, no overflow."""

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.site.browser import Browser, browser

ROOT = Path(__file__).parents[2]
SITE = ROOT / "build/site"
CRDS = sorted((ROOT / "packaging/signer/crds").glob("*.yaml"))
# A web server sends 404.html for any path, so its links begin at the root of the server.
PAGES = sorted({str(page.relative_to(SITE)) for page in SITE.rglob("*.html")} - {"404.html"})
WIDTHS = {"desktop": 1280, "phone": 360}
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# Texts of diagrams that are wider than the box around them. Some pixels more are not seen.
LABELS = """[...document.querySelectorAll("img[src^='data:image/svg']")].flatMap((image) => {
  const source = atob(image.src.split(",")[1]);
  const svg = new DOMParser().parseFromString(source, "image/svg+xml").documentElement;
  svg.setAttribute("width", image.getAttribute("width"));
  document.body.append(svg);
  const boxes = [...svg.querySelectorAll("rect")].map((box) => box.getBoundingClientRect());
  boxes.sort((one, other) => one.width - other.width);
  const wide = [...svg.querySelectorAll("text")].filter((text) => {
    const {left, right, top, bottom} = text.getBoundingClientRect();
    const [x, y] = [(left + right) / 2, (top + bottom) / 2];
    const box = boxes.find((b) => b.left <= x && x <= b.right && b.top <= y && y <= b.bottom);
    return box && right - left > box.width + 4;
  });
  svg.remove();
  return wide.map((text) => text.textContent);
})"""
DIAGRAM = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 400 40">
<rect width="20" height="40"/><text y="20" textLength="40">wide</text></svg>"""
BROKEN = f"""<!doctype html><meta name=viewport content="width=device-width">
<img width="400" src="data:image/svg+xml;base64,{base64.b64encode(DIAGRAM.encode()).decode()}">
<img src="https://elsewhere.example/a.png">
<script>console.error("an error"); absent()</script>
<div style="width: 2000px">wide</div>
"""
SEARCH = """new Promise((resolve) => {
  const query = document.querySelector("[data-md-component=search-query]");
  query.focus();
  query.value = "WORD";
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
    labels = [f"label: {text}" for text in tab.evaluate(LABELS)]
    wide = tab.evaluate(OVERFLOW)
    return [*tab.problems, *labels, *([f"{wide} px too wide"] if wide > 0 else [])]


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
    assert kinds == ["console", "exception", "label", "log", "request"]
    assert any(line.endswith("px too wide") for line in found)


@pytest.mark.parametrize("word", ["endorsement", "UsagesNotAllowed"])
def test_search_finds_pages_without_a_web_server(tab: Browser, word: str) -> None:
    """Also a reason, between whose words the browser may break a line."""
    tab.open(SITE / "index.html", WIDTHS["desktop"])
    assert tab.evaluate(SEARCH.replace("WORD", word)) > 0
    assert tab.problems == []


def descriptions(schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the description of each field of a schema, one for a list and what is in it."""
    for field in schema.get("properties", {}).values():
        inner = field.get("items", field)
        yield field.get("description") or inner.get("description", "")
        yield from descriptions(inner)


@pytest.mark.parametrize("file", CRDS, ids=lambda path: path.stem)
def test_page_of_the_objects_has_every_description(tab: Browser, file: Path) -> None:
    """Names in angle brackets were lost."""
    tab.open(SITE / "reference/crds.html", WIDTHS["desktop"])
    page = " ".join(tab.evaluate("document.body.textContent").split())
    [version] = yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]["versions"]
    properties = version["schema"]["openAPIV3Schema"]["properties"]
    texts = [text for name in ("spec", "status") for text in descriptions(properties.get(name, {}))]
    assert len(texts) > 5
    assert [text for text in texts if " ".join(text.replace("`", "").split()) not in page] == []
