"""Protocol, code, errors and tests name the same checks by the same numbers."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import signer.errors  # noqa: F401 - adds the signer's leaves to the tree
from common.errors import AttestationError
from signer.verify.checks import CHECKS

ROOT = Path(__file__).parents[4]
ROW = re.compile(r"^\| ([RPCAQMEKSI][0-9]) \|", re.MULTILINE)


def leaves(root: type[AttestationError] = AttestationError) -> Iterator[type[AttestationError]]:
    children = root.__subclasses__()
    for child in children:
        yield from leaves(child)
    if not children:
        yield root


def product_leaves() -> list[type[AttestationError]]:
    """List the leaves that the product defines; other tests may define more."""
    return [leaf for leaf in leaves() if leaf.__module__.partition(".")[0] in {"common", "signer"}]


@cache
def text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def raised_names() -> frozenset[str]:
    """Collect the names that the product's modules load, but for the modules of errors."""
    paths = [
        p
        for directory in ("common", "signer", "authenticator")
        for p in ROOT.glob(f"{directory}/**/*.py")
    ]
    trees = [ast.parse(p.read_text(encoding="utf-8")) for p in paths if p.name != "errors.py"]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = {n.id for n in nodes if isinstance(n, ast.Name)}
    return frozenset(names | {n.attr for n in nodes if isinstance(n, ast.Attribute)})


def test_protocol_and_code_have_the_same_checks() -> None:
    assert sorted(CHECKS) == sorted(ROW.findall(text("docs/protocol.md")))


def test_every_check_has_an_error_and_every_number_is_a_check() -> None:
    assert {leaf.check for leaf in product_leaves()} - {""} == set(CHECKS)


@pytest.mark.parametrize("leaf", product_leaves(), ids=lambda leaf: leaf.reason)
def test_every_reason_is_the_name_of_an_error_that_the_code_raises(
    leaf: type[AttestationError],
) -> None:
    """A stranger who searches for a reason finds the code that raises it."""
    assert leaf.reason == leaf.__name__
    assert leaf.reason in raised_names()
