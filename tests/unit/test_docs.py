"""What the documentation says of reasons, checks and links is what the code has."""

import re
from pathlib import Path

import pytest

from common import errors

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
ROW = re.compile(r"\| `(\w+)`( \*\*!\*\*)? \| (\w*) \|[^|]+\| \S[^|]* \|")
LINK = re.compile(r"\]\((?!https?://)([^)#]+)[^)]*\)")


def test_every_reason_has_its_row_and_no_other_has() -> None:
    rows = {
        match[1]: (match[3], bool(match[2]))
        for match in ROW.finditer((ROOT / "docs/reasons.md").read_text(encoding="utf-8"))
    }
    leaves = {
        leaf.reason: (leaf.check, leaf.alarm)
        for family in errors.AttestationError.__subclasses__()
        for leaf in family.__subclasses__()
    }
    assert rows == leaves


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    targets = LINK.findall(document.read_text(encoding="utf-8"))
    missing = [target for target in targets if not (document.parent / target).exists()]
    assert not missing
