"""Pages of the documentation: links, navigation, readers, and references with a row for each."""

import re
from argparse import _SubParsersAction
from pathlib import Path

import pytest

from signer.operator_cli.command_parser import COMMANDS as OPERATOR_COMMANDS
from signer.operator_cli.command_parser import build_parser as build_operator_parser
from signer.settings.arguments import parse_arguments as parse_signer_arguments
from signer.verify.checks import CHECKS
from tests.harness.documentation import PAGES, ROOT

LINK = re.compile(r"\]\((?!https?://)([^)#]+)[^)]*\)")


@pytest.mark.parametrize("document", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_link_targets_exist(document: Path) -> None:
    targets = LINK.findall(document.read_text(encoding="utf-8"))
    missing = [target for target in targets if not (document.parent / target).exists()]
    assert not missing


@pytest.mark.parametrize("index", ["mkdocs.yml", "docs/README.md"])
def test_every_page_is_in_the_navigation_and_in_the_index(index: str) -> None:
    """`make docs` fails for a page without a place in the navigation."""
    listed = set(re.findall(r"(?:- |: |\()((?:\w+/)?[\w-]+\.md)\b", (ROOT / index).read_text()))
    docs = ROOT / "docs"
    pages = {str(page.relative_to(docs)) for page in docs.rglob("*.md")} - {"README.md"}
    runbooks = {page for page in pages if page.startswith("runbooks/")}
    decisions = {page for page in pages if page.startswith("decisions/0")}
    expected = pages - decisions - (runbooks if index == "docs/README.md" else set())
    assert expected - listed == set(), f"{index} must list them"


NOT_PROSE = re.compile(r"```.*?```|<!--.*?-->|`[^`]*`", re.DOTALL)


@pytest.mark.parametrize("document", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_in_angle_brackets_are_code(document: Path) -> None:
    """A browser takes other ones for tags, and does not show them."""
    text = NOT_PROSE.sub("", document.read_text(encoding="utf-8"))
    assert re.findall(r"<[A-Za-z/][^>\n]*>", text) == []


READERS_PAGES = [
    page for page in PAGES if page.is_relative_to(ROOT / "docs") and page.parent.name != "decisions"
]
CHECK_NUMBER = re.compile(rf"\b(?:{'|'.join(CHECKS)})\b")


@pytest.mark.parametrize("page", READERS_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_says_first_for_whom_it_is(page: Path) -> None:
    assert "For " in page.read_text(encoding="utf-8").splitlines()[2]


@pytest.mark.parametrize("page", READERS_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_with_the_number_of_a_check_links_to_the_checks(page: Path) -> None:
    """An operator who has not read the protocol does not know what Q4 is."""
    text = page.read_text(encoding="utf-8")
    if CHECK_NUMBER.search(text) and page.name not in {"protocol.md", "threat-model.md"}:
        assert "protocol.md#5-what-the-signer-checks)" in text


def test_every_flag_of_the_signer_has_its_row(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_signer_arguments(["run", "--help"])
    flags = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help"}
    page = (ROOT / "docs/reference/flags.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(--[a-z-]+)", page, re.MULTILINE)) == flags


def test_every_metric_of_the_signer_has_its_row() -> None:
    sources = (ROOT / "signer/controller/observability").glob("*.py")
    text = "".join(source.read_text(encoding="utf-8") for source in sources)
    metrics = set(re.findall(r'"(?:{_PREFIX}|node_attestation)(_\w+)"', text))
    page = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"`node_attestation(_\w+?)(?:_total)?[`{]", page.replace(": `", "`")))
    assert rows == metrics


def test_every_check_of_doctor_has_its_row() -> None:
    operator = ROOT / "signer/operator_cli"
    sources = [*(operator / "checks").glob("*.py"), operator / "commands/doctor.py"]
    text = "".join(source.read_text(encoding="utf-8") for source in sources)
    titles = dict(re.findall(r'^(\w+): Final = "(.+)"$', text, re.MULTILINE))
    arguments = re.findall(r'DoctorCheck\((?:"([^"]+)"|(\w+)), ', text)
    checks = {title or titles[name] for title, name in arguments}
    _, _, page = (ROOT / "docs/operator-cli.md").read_text().partition("| check | problem |\n")
    assert set(re.findall(r"^\| ([^|`]+) \|", page.partition("\n\n")[0], re.MULTILINE)) == checks


def test_every_command_that_reads_leases_names_the_permission() -> None:
    reading = {
        name
        for name in OPERATOR_COMMANDS
        for words in ([name], [name, "check"], [name, "review"])
        if "--signer-namespace" in flags_of(words)
    }
    page = (ROOT / "docs/operator-cli.md").read_text(encoding="utf-8")
    [row] = re.findall(r"^\| (.+) \| `list` on Leases in ", page, re.MULTILINE)
    assert set(re.findall("`(.+?)`", row)) == reading


def flags_of(words: list[str]) -> set[str]:
    """Return the flags of a command of operators; none if there is no such command."""
    parser = build_operator_parser()
    for word in words:
        choices = [a.choices for a in parser._actions if isinstance(a, _SubParsersAction)]
        if not choices or word not in choices[0]:
            return set()
        parser = choices[0][word]
    return {option for action in parser._actions for option in action.option_strings}


def test_sizes_are_those_that_were_measured() -> None:
    """Machines, Clusters, peak memory and the time until ready of each row."""
    sizing, measured = (
        re.sub(r"\*\*", "", (ROOT / "docs" / page).read_text(encoding="utf-8"))
        for page in ("install/sizing.md", "performance.md")
    )
    rows = re.findall(
        r"^\| ([\d,]+) \| ([\d,]+) \| (\d+ MiB) \| ([\d.]+ s) \|", sizing, re.MULTILINE
    )
    assert len(rows) == 6
    for machines, clusters, memory, ready in rows:
        row = rf"^\| {machines}, {clusters} \| {re.escape(ready)}[ ,].*\| {memory} \|$"
        assert re.search(row, measured, re.MULTILINE), row


def test_front_page_has_the_four_figures_that_were_measured() -> None:
    """Without the links of the other page."""
    front, measured = (
        re.findall(r"^\| (.+\?) \| (.+) \| (.+) \|$", text, re.MULTILINE)
        for text in (
            (ROOT / "README.md").read_text(encoding="utf-8"),
            re.sub(r" \(\[[^|]+\)\)", "", (ROOT / "docs/performance.md").read_text("utf-8")),
        )
    )
    assert len(front) == 4
    assert front == measured
