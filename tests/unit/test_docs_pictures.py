"""Pictures in the documentation show what the programs print now."""

import html
import json
import re
from pathlib import Path

from tests.demo import dashboard
from tests.demo.__main__ import INTRUDERS, NODE
from tests.demo.recording import PICTURE, record

ROOT = Path(__file__).parents[2]


def text_of(svg: str) -> str:
    """Return the text of a picture, one line for each line of the terminal."""
    return html.unescape("\n".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg))).replace(
        "\xa0", " "
    )


def test_picture_of_the_demo_has_every_chapter() -> None:
    """`make recording` makes it again."""
    shown = text_of(PICTURE.read_text(encoding="utf-8"))
    chapters = [f"Node {NODE} joins cluster", *INTRUDERS, "An unknown TPM asks", "bans this TPM"]
    assert [chapter for chapter in chapters if chapter not in shown] == []
    assert shown.rstrip().endswith("four nodes have joined, four attackers have no certificate")


def test_every_picture_is_made_by_a_program() -> None:
    pictures = [p for p in (ROOT / "docs").rglob("*") if p.suffix in {".svg", ".png", ".gif"}]
    assert sorted(pictures) == sorted([PICTURE, dashboard.PICTURE])


def test_page_of_the_dashboard_can_draw_every_panel() -> None:
    """`make dashboard-picture` makes its picture."""
    page = (dashboard.PAGE / "page.jsx").read_text(encoding="utf-8")
    panels = json.loads(dashboard.DASHBOARD.read_text(encoding="utf-8"))["panels"]
    assert panels
    assert [p["title"] for p in panels if f"{p['type']}: new PanelPlugin" not in page] == []
    used = {step["id"] for panel in panels for step in panel.get("transformations", ())}
    assert used == set(re.findall(r"\{ id: '(\w+)', name: '\w+', transformation:", page))


def test_recording_shows_the_lines_as_they_are() -> None:
    lines = ["", "  1.0 s  a <step> & [bold]no markup[/bold]"]
    svg = record(lines)
    assert lines[1] in text_of(svg)
    assert record(lines) == svg
