"""The error tree: each leaf has one consequence, and a reason that every output accepts."""

import re

import pytest

import authenticator.errors
import signer.errors
from common import errors
from common.errors import AttestationError, Consequence
from signer.verify.checks import CHECKS

FAMILIES: dict[type, Consequence] = {
    errors.Denied: Consequence.DENY,
    errors.Waiting: Consequence.WAIT,
    errors.Ignored: Consequence.IGNORE,
    errors.Unavailable: Consequence.RETRY,
    errors.StartOver: Consequence.START_OVER,
    errors.Fatal: Consequence.FATAL,
}
LEAVES = [
    leaf
    for tree in (errors, authenticator.errors, signer.errors)
    for leaf in vars(tree).values()
    if isinstance(leaf, type)
    and issubclass(leaf, AttestationError)
    and leaf not in {AttestationError, *FAMILIES}
]
REASON = re.compile(r"([A-Z][a-z0-9]*|ID)+")


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.__name__)
def test_leaf_has_the_consequence_of_its_one_family(leaf: type[AttestationError]) -> None:
    (family,) = leaf.__bases__
    assert leaf.consequence is FAMILIES[family]


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.__name__)
def test_leaf_names_its_reason_and_check(leaf: type[AttestationError]) -> None:
    assert leaf.reason == leaf.__name__
    assert REASON.fullmatch(leaf.reason)
    assert leaf.check in {"", *CHECKS}


def test_of_the_final_verdicts_only_that_on_a_copied_key_raises_an_alarm() -> None:
    """Anyone who may file CSRs causes the others."""
    undecided = {Consequence.WAIT, Consequence.RETRY}
    alarming = {leaf for leaf in LEAVES if leaf.alarm and leaf.consequence not in undecided}
    assert alarming == {signer.errors.RequesterCredentialUnknown}


def test_detail_is_not_in_the_public_message() -> None:
    error = signer.errors.MachineNotFound("no such Machine", detail="searched secret-cluster")
    assert (str(error), error.message) == ("no such Machine", "no such Machine")
    assert error.detail == "searched secret-cluster"
    assert "secret" not in f"{error!r}{error}"
    assert signer.errors.MachineNotFound("no such Machine").detail == ""
