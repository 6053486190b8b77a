"""Reasons, checks and links of the documentation agree with the code."""

import re
from pathlib import Path

import pytest

import authenticator.errors
import common.errors
import signer.errors
from common import names
from common.errors import AttestationError, Consequence
from tests.builders.kube_objects import INSECURE_CLIENT_SIGNER

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
MODULES = (common.errors, signer.errors, authenticator.errors)
LEAVES = [
    leaf
    for module in MODULES
    for leaf in vars(module).values()
    if isinstance(leaf, type)
    and issubclass(leaf, AttestationError)
    and leaf.mro()[2] is AttestationError
]
"""The classes that name a reason: the direct subclasses of the families."""
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
    leaves = {leaf.reason: (leaf.check, leaf.alarm, leaf.consequence) for leaf in LEAVES}
    assert rows == leaves


NAMES = {
    "client signer": names.CLIENT_SIGNER,
    "serving signer (ours)": names.SERVING_SIGNER,
    "serving signer (built in, approve only)": names.BUILTIN_SERVING_SIGNER,
    "insecure signer": INSECURE_CLIENT_SIGNER,
    "provider ID extension": names.PROVIDER_ID_OID,
    "PEM block 2": names.PEM_PROVIDER,
    "PEM block 3": names.PEM_DATA,
    "endorsement key record": names.ENDORSEMENT_KEY_ANNOTATION,
    "our other annotations": names.ANNOTATION_PREFIX,
    "our API group": f"{names.API_GROUP}/{names.API_VERSION}",
}


@pytest.mark.parametrize(("what", "name"), NAMES.items(), ids=str)
def test_names_are_those_of_the_protocol(what: str, name: str) -> None:
    """Both programs import these names from one module, so integration tests miss a wrong one."""
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
def test_link_targets_exist(document: Path) -> None:
    targets = LINK.findall(document.read_text(encoding="utf-8"))
    missing = [target for target in targets if not (document.parent / target).exists()]
    assert not missing


@pytest.mark.parametrize(
    ("heading", "program"),
    [("Packages of the node's program", "authenticator"), ("Packages of the signer", "signer")],
)
def test_architecture_has_every_package_of_a_program(heading: str, program: str) -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    table = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
    listed = [name for row in rows for name in row.split(", ")]
    packages = {f"{path.parent.name}/" for path in (ROOT / program).glob("*/__init__.py")}
    modules = {path.name for path in (ROOT / program).glob("[!_]*.py")}
    assert sorted(name.strip("`") for name in listed) == sorted(packages | modules)
