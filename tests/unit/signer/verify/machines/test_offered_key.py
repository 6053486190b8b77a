"""How an unregistered key is described for operators."""

from typing import Any

import pytest

from signer.kinds.key_request import (
    EndorsementKeyRequest,
    OfferedCertificate,
    OfferedKey,
    encode_key_request,
    read_key_request,
)
from signer.verify.attestation.endorsement_key import verify_endorsement_key
from signer.verify.machines.offered_key import TRUSTED, describe_offered_key, may_offer_key
from signer.verify.requests.parse import ParsedOffer, parse_request
from signer.verify.requests.request import ENTRY_USER
from tests.builders.certificates import anchors, authority, leaf, leaf_extensions, san, vendor
from tests.builders.machine_names import GCE_ID, UUID, gce_extension, named_leaf
from tests.builders.scenario import Scenario, key_name
from tests.builders.software_tpm import endorsement_key

AMD = {"manufacturer": "AMD", "model": "AMD", "firmware": "id:00030002"}


def describe(scenario: Scenario) -> OfferedKey:
    csr = scenario.offer_csr()
    offer = parse_request(csr, scenario.kind)
    assert isinstance(offer, ParsedOffer)
    key = verify_endorsement_key(offer.evidence.ek_public)
    return describe_offered_key(csr, offer, key, scenario.context())


def scenario_with(*certificates: bytes) -> Scenario:
    root, intermediate = vendor()
    scenario = Scenario(anchors=anchors(root, intermediate))
    scenario.certificates = certificates
    return scenario


def certificate_of(scenario: Scenario) -> bytes:
    return leaf(vendor()[1], scenario.ek.private.public_key())


def test_trusted_certificate_names_the_tpm() -> None:
    key = describe(scenario_with(certificate_of(Scenario())))
    assert key.certificate == OfferedCertificate(status=TRUSTED, **AMD)
    assert key.sha256 == key_name(Scenario().ek)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"extension": gce_extension()}, GCE_ID),
        ({"common_name": f"instance-2a:{UUID}"}, f"domain {UUID}"),
        ({"common_name": "instance-2a"}, ""),
        ({"extension": gce_extension([])}, ""),
    ],
    ids=["instance", "domain", "no name", "unreadable name"],
)
def test_certificate_names_the_machine(names: dict[str, Any], expected: str) -> None:
    key = Scenario().ek.private.public_key()
    described = describe(scenario_with(named_leaf(vendor()[1], key, **names)))
    assert (described.certificate.status, described.certificate.certified_for) == (
        TRUSTED,
        expected,
    )


def test_certificate_of_an_unknown_authority_is_shown_as_untrusted() -> None:
    key = Scenario().ek.private.public_key()
    described = describe(scenario_with(leaf(authority("Stranger"), key)))
    assert described.certificate == OfferedCertificate(
        status="EndorsementCertificateUntrusted", **AMD
    )


def test_identity_is_that_of_the_trusted_certificate() -> None:
    """A self-made certificate for the same key must not lend its vendor to the genuine one."""
    key = Scenario().ek.private.public_key()
    extensions = {e: c for e, c in leaf_extensions(key).items() if e.oid != san().oid}
    genuine = leaf(vendor()[1], key, extensions=extensions)
    described = describe(scenario_with(leaf(authority("Stranger"), key), genuine))
    assert described.certificate == OfferedCertificate(status=TRUSTED)


@pytest.mark.parametrize(
    ("certificates", "reason"),
    [
        ((), "EndorsementCertificateMissing"),
        ((b"no certificate",), "EndorsementCertificateMalformed"),
        (
            (leaf(vendor()[1], endorsement_key(2).private.public_key()),),
            "EndorsementCertificateMismatch",
        ),
    ],
)
def test_key_without_a_certificate_of_its_own_has_no_identity(
    certificates: tuple[bytes, ...], reason: str
) -> None:
    key = describe(scenario_with(*certificates))
    assert key.certificate == OfferedCertificate(status=reason)


def test_long_user_name_is_cut_to_what_the_crd_accepts() -> None:
    """The API server refused the request of such a user, and no operator saw the key."""
    scenario = Scenario()
    scenario.username = "u" * 600
    body = encode_key_request(
        EndorsementKeyRequest(
            name="machine-1",
            namespace="team-a",
            uid="",
            resource_version="",
            cluster_name="blue",
            machine_uid="uid-1",
            provider_id="test://1",
            keys=(describe(scenario),),
        )
    )
    body["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    [key] = read_key_request(body).keys
    assert key.requester == "u" * 512


def test_only_the_token_of_the_machine_may_offer_a_key() -> None:
    scenario = Scenario()
    own = scenario.offer_csr()
    assert may_offer_key(own, scenario.machine)
    scenario.username = "system:bootstrap:zyxwvu"
    other = scenario.offer_csr()
    assert not may_offer_key(other, scenario.machine)
    scenario.change_machine(bootstrap_token_id=None)
    assert may_offer_key(other, scenario.machine)
    scenario.change_machine(is_pool_member=True)
    assert not may_offer_key(other, scenario.machine)


def test_entry_credential_names_no_key_for_operators() -> None:
    """Every node has it, so a copy of it could offer a TPM for any Machine."""
    scenario = Scenario()
    scenario.change_machine(bootstrap_token_id=None)
    scenario.username = ENTRY_USER
    assert not may_offer_key(scenario.offer_csr(), scenario.machine)
