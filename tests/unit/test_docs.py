"""The documentation agrees with the code: reasons, checks, names, links, commands and files."""

import ast
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

import authenticator.errors
import common.errors
import signer.errors
from authenticator.config import invocation, settings
from authenticator.config.command_line import parse_arguments as parse_node_arguments
from authenticator.config.kubeconfig import Kubeconfig
from common import names
from common.errors import AttestationError, Consequence
from signer.operator_cli.command_parser import parse_arguments as parse_operator_arguments
from signer.policy.load import load_policies
from signer.policy.policy import BANKS
from signer.policy.section import Section
from signer.settings.arguments import COMMANDS as SIGNER_COMMANDS
from signer.settings.arguments import parse_arguments as parse_signer_arguments
from tests.builders.kube_objects import INSECURE_CLIENT_SIGNER
from tests.harness.documentation import (
    COMMANDS,
    PAGES,
    ROOT,
    Block,
    blocks,
    inline_commands,
    split_commands,
)

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


def test_no_reason_changes_without_a_line_in_the_changelog() -> None:
    """Alerts match reasons; two were renamed, and CHANGELOG.md did not say so."""
    text = (ROOT / "tests/unit/reasons.txt").read_text(encoding="utf-8")
    listed = [line for line in text.splitlines() if not line.startswith("#")]
    former = {line.partition(" -> ")[0] for line in listed if " -> " in line}
    assert {line for line in listed if " -> " not in line} == {leaf.reason for leaf in LEAVES}
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert {name for name in former if f"`{name}`" not in changelog} == set()


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


@pytest.mark.parametrize(
    "package",
    [f"signer/{name}" for name in ("controller", "inventory", "kube", "operator_cli", "verify")],
)
def test_every_room_has_its_place_in_the_architecture(package: str) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    _, _, section = page.partition(f"## Rooms of `{package}/`\n")
    rows = re.findall(r"^\|([^|]+)\|", section.partition("\n## ")[0], re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(\w+)/?`", row)}
    children = {path.parent.name for path in (ROOT / package).glob("*/__init__.py")}
    children |= {path.stem for path in (ROOT / package).glob("*.py")} - {"__init__"}
    assert listed == children


BLOCKS = blocks()
MARKED = re.compile(
    r"run|run on a node|run by: (?P<file>tests/[\w/]+\.py)::(?P<test>\w+)|not run: \S.{10,}"
)


def of_language(*languages: str) -> list[Block]:
    return [block for block in BLOCKS if block.language in languages]


def require_test(block: Block) -> None:
    """Require that the comment before a block is right, and that its test exists."""
    marker = MARKED.fullmatch(block.marker)
    assert marker, f"{block}: a comment must say which test runs this block, or why none can"
    if marker["file"]:
        source = (ROOT / marker["file"]).read_text(encoding="utf-8")
        assert re.search(rf"^def {marker['test']}\(", source, re.MULTILINE)


@pytest.mark.parametrize("block", of_language(*COMMANDS), ids=str)
def test_commands_are_run_by_a_test_or_say_why_not(block: Block) -> None:
    """An HTML comment before the block says which (tests/harness/documentation.py)."""
    require_test(block)


def test_block_of_unknown_language_is_not_overlooked() -> None:
    """Commands in a block without a language would escape the test above."""
    plain = {*COMMANDS, "yaml", "toml", "python", "ini", "mermaid", "text"}
    assert [str(block) for block in BLOCKS if block.language not in plain] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_block_is_marked_by_indentation_alone(page: Path) -> None:
    """The tests find fenced blocks only. Within a list, text is indented, too."""
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"^(?!\d+\. |- |\* | )[^\n]+\n\n {4}\S.*$", text, re.MULTILINE) == []


def parse_program(words: list[str]) -> None:
    """Parse the arguments of one of our programs, of make, or of nothing that we know."""
    program, *arguments = words
    if program == "kubelet-authenticator-tpm":
        arguments = [each for each in arguments if not re.fullmatch(r"\$[A-Z_]+_ARGS", each)]
        assert parse_node_arguments(arguments).problems == ()
    elif program == "node-attestation-signer":
        parse_signer_arguments(arguments)
    elif words[:2] == ["kubectl", "attestation"]:
        parse_operator_arguments(words[2:])
    elif program == "make":
        targets = [each for each in arguments if re.fullmatch(r"[a-z-]+", each)]
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


@pytest.mark.parametrize("block", of_language(*COMMANDS), ids=str)
def test_documented_commands_have_arguments_that_the_programs_know(block: Block) -> None:
    for words in block.commands:
        parse_program(words)


@pytest.mark.parametrize(("page", "text"), inline_commands())
def test_commands_in_sentences_have_arguments_that_the_programs_know(page: str, text: str) -> None:
    """A sentence may name a command of the signer without the flags that it requires."""
    for words in split_commands(text):
        program, *arguments = words
        if program == "node-attestation-signer" and len(arguments) == 1:
            assert arguments[0] in SIGNER_COMMANDS, page
        else:
            parse_program(words)


def read_policy(document: object) -> None:
    load_policies(yaml.safe_dump(document))


def read_kubeconfig(document: Mapping[str, Any]) -> None:
    [cluster], [user] = document["clusters"], document["users"]
    cluster = dict(cluster["cluster"])
    cluster.pop("certificate-authority", None)  # no such file here
    source = Kubeconfig(path=ROOT, cluster=cluster, user=user["user"])
    [extension] = cluster["extensions"]
    settings.resolve(extension["extension"], {}, "node-1", ())
    assert invocation.call_of_kubeconfig(source).origin == str(ROOT)


def read_setting(document: Mapping[str, object]) -> None:
    settings.resolve(document, {}, "node-1", ())


def is_run_elsewhere(_: object) -> None:
    """Do nothing: tests/integration/test_documentation.py gives these to a real API server."""


READERS: Mapping[str | None, Callable[[Any], None]] = {
    "KubeletAttestationPolicy": read_policy,
    "Config": read_kubeconfig,
    None: read_setting,
    "EndorsementKey": is_run_elsewhere,
    "ClusterRoleBinding": is_run_elsewhere,
    "KubeadmConfigTemplate": is_run_elsewhere,
}
"""Readers of YAML by kind; without a kind it is a setting of the node."""


@pytest.mark.parametrize("block", of_language("yaml"), ids=str)
def test_documented_yaml_is_accepted_by_its_reader(block: Block) -> None:
    if block.marker.startswith("run by"):
        require_test(block)
        return
    documents = list(yaml.safe_load_all(block.text))
    assert documents
    for document in documents:
        READERS[document.get("kind")](document)


@pytest.mark.parametrize("block", of_language("toml", "python"), ids=str)
def test_documented_code_can_be_parsed(block: Block) -> None:
    if block.language == "toml":
        tomllib.loads(block.text)
    else:
        ast.parse(block.text)


def test_complete_policy_has_every_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was printed as complete was refused, since its keys contradicted each other."""
    missing: set[str] = set()
    contains = Section.__contains__

    def record(section: Section, key: str) -> bool:
        found = contains(section, key)
        if not found:
            missing.add(f"{section._path}.{key}")
        return found

    monkeypatch.setattr(Section, "__contains__", record)
    [complete] = [block for block in BLOCKS if block.marker == "complete policy"]
    load_policies(complete.text)
    other_banks = {f".{key}.{bank}" for key in ("selection", "pcrs") for bank in BANKS}
    other_trusts = {
        "spec.endorsementKey.certificateNames",
        "spec.attestationKey.certificateAuthorities",
    }
    assert {each for each in missing if not each.endswith(tuple(other_banks))} == other_trusts


def test_each_decision_record_has_a_number_of_its_own_and_a_row_in_the_index() -> None:
    records = [path.name for path in (ROOT / "docs" / "decisions").glob("[0-9]*.md")]
    index = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    assert len({name[:4] for name in records}) == len(records)
    assert sorted(re.findall(r"^\| \[\d{4}\]\((.+?)\)", index, re.MULTILINE)) == sorted(records)


def test_no_cell_of_a_table_of_the_protocol_is_longer_than_400_characters() -> None:
    rows = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8").splitlines()
    cells = [cell for row in rows if row.startswith("|") for cell in row.split(" | ")]
    assert [cell for cell in cells if len(cell) > 400] == []
