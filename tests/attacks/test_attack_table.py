"""The table of attacks is complete: unique names, and an attack for each reason of the signer.

If no attack meets an error, its check can disappear unnoticed.
"""

import importlib
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from common import errors as common_errors
from common.errors import AttestationError
from signer import errors
from tests.attacks.runner import Attack

DIRECTORY = Path(__file__).parent
FAMILIES = [
    module
    for path in sorted(DIRECTORY.glob("test_*.py"))
    if path != Path(__file__)
    and hasattr(module := importlib.import_module(f"tests.attacks.{path.stem}"), "ATTACKS")
]
ATTACKS: list[Attack] = [attack for family in FAMILIES for attack in family.ATTACKS]
LEAVES = [
    leaf
    for leaf in {**vars(common_errors), **vars(errors)}.values()
    if isinstance(leaf, type) and issubclass(leaf, AttestationError) and leaf.check
]
ELSEWHERE = {
    errors.BanNotRecorded: "needs the list of a workload cluster: test_ended_answers.py",
    errors.NodeNameHolderNotRecorded: "as the one above",
    errors.EndedCertificatesNotListed: "as the one above",
    errors.PolicyMissing: "needs no request at all: test_reconciler.py",
    errors.PolicyConflict: "needs no request: test_reconciler.py",
    errors.PolicyInvalid: "needs no request: test_reconciler.py",
    errors.AttestationPolicyPresent: "is another program's: tests/unit/signer/insecure",
    errors.MachineAlreadyCertified: "is another program's: tests/unit/signer/insecure",
    errors.AccessNotAllowed: "the API server decides: verify/requests/test_access.py",
    errors.AccessReviewUnavailable: "is an outage: test_reconciler.py",
    errors.EndorsementKeyQuotaExceeded: "tests/unit/signer/controller/reconcile/test_key_quota.py",
    errors.AuthorityShared: "needs two Clusters: test_authorities.py",
    errors.CertificateNotAsVerified: "is the signer's own fault: test_issued_certificates.py",
    errors.AuthorityUnavailable: "is the Secret's fault: tests/unit/signer/issue/test_authority.py",
}
"""Reasons that no single request causes, and the tests that cover them."""


def test_table_has_300_attacks_at_least() -> None:
    assert len(ATTACKS) >= 300


def test_each_attack_has_a_unique_name() -> None:
    names = Counter(str(attack) for attack in ATTACKS)
    assert [name for name, times in names.items() if times > 1] == []


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.__name__)
def test_each_reason_of_the_signer_has_an_attack(leaf: type[AttestationError]) -> None:
    met = any(attack.reason is leaf for attack in ATTACKS)
    assert met != (leaf in ELSEWHERE)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_each_family_has_a_docstring_and_a_good_case(family: ModuleType) -> None:
    assert len((family.__doc__ or "").splitlines()) > 3
    assert any(name.startswith("test_the_good_case") for name in vars(family))
    assert "test_attack_is_refused" in vars(family)
