"""What the documentation says of reasons, checks and links is what the code has."""

import re
from pathlib import Path

import pytest

import authenticator.errors  # noqa: F401 - as the next one
import signer.errors  # noqa: F401 - both add their leaves to the tree
from common import errors, names
from common.errors import Consequence

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
ROW = re.compile(r"\| `(\w+)`( \*\*!\*\*)? \| (\w*) \|[^|]+\| \S[^|]* \|")
FAMILIES = {
    "Denied": Consequence.DENY,
    "Waiting": Consequence.WAIT,
    "Ignored": Consequence.IGNORE,
    "Tried again": Consequence.RETRY,
    "Started over": Consequence.START_OVER,
    "Needs a change": Consequence.FATAL,
}
"""What happens next, by the heading in docs/reasons.md."""
LINK = re.compile(r"\]\((?!https?://)([^)#]+)[^)]*\)")


def test_every_reason_has_its_row_and_no_other_has() -> None:
    """Under the heading of what happens next."""
    text = (ROOT / "docs/reasons.md").read_text(encoding="utf-8")
    headings, parts = FAMILIES.keys(), re.split(r"^## (.+)\n", text, flags=re.MULTILINE)[1:]
    assert list(headings) == parts[::2]
    rows = {
        match[1]: (match[3], bool(match[2]), FAMILIES[heading])
        for heading, part in zip(headings, parts[1::2], strict=True)
        for match in ROW.finditer(part)
    }
    leaves = {
        leaf.reason: (leaf.check, leaf.alarm, leaf.consequence)
        for family in errors.AttestationError.__subclasses__()
        for leaf in family.__subclasses__()
    }
    assert rows == leaves


NAMES = {
    "client signer": names.CLIENT_SIGNER,
    "serving signer (ours)": names.SERVING_SIGNER,
    "serving signer (built in, approve only)": names.BUILTIN_SERVING_SIGNER,
    "insecure signer": names.INSECURE_CLIENT_SIGNER,
    "provider ID extension": names.PROVIDER_ID_OID,
    "PEM block 2": names.PEM_PROVIDER,
    "PEM block 3": names.PEM_DATA,
    "endorsement key record": names.ENDORSEMENT_KEY_ANNOTATION,
    "our other annotations": names.ANNOTATION_PREFIX,
    "our API group": f"{names.API_GROUP}/{names.API_VERSION}",
}


@pytest.mark.parametrize(("what", "name"), NAMES.items(), ids=str)
def test_names_are_those_of_the_protocol(what: str, name: str) -> None:
    """Both programs take them from one place, so that no exchange between them tells."""
    text = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| {re.escape(what)} \| (.+) \|$", text, re.MULTILINE)
    assert re.findall("`([^`]+)`", row)[0] == name


def test_annotations_are_those_of_the_protocol() -> None:
    text = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| our other annotations \| (.+) \|$", text, re.MULTILINE)
    prefix, *rest = re.findall("`([^`]+)`", row)
    assert [prefix + name for name in rest] == [
        names.CHALLENGE_ANNOTATION,
        names.SUPPORTED_VERSIONS_ANNOTATION,
        names.PENDING_REASON_ANNOTATION,
    ]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    targets = LINK.findall(document.read_text(encoding="utf-8"))
    missing = [target for target in targets if not (document.parent / target).exists()]
    assert not missing
