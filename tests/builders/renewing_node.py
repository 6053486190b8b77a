"""A node that has a certificate and renews it, and what the signer says about that."""

from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from signer.kinds.attested_node import AttestedNodeObject
from signer.kinds.csr import Csr, credential_id
from signer.policy.policy import UnknownCredential
from tests.builders.reconciler import ReconcilerFixture

KNOWN, COPIED = credential_id(b"known"), credential_id(b"copied")


def of_a_node(
    presented: str, reaction: UnknownCredential = UnknownCredential.WARN
) -> ReconcilerFixture:
    """Return a node that has the certificate `KNOWN` and files its requests with this one."""
    fixture = ReconcilerFixture()
    scenario = fixture.scenario
    renewals = replace(scenario.policy.renewals, unknown_credential=reaction)
    scenario.policy = replace(scenario.policy, renewals=renewals)
    scenario.credential_id = presented
    scenario.as_node()
    scenario.put_claim(credential_ids=(KNOWN,))
    return fixture


def claim_of(fixture: ReconcilerFixture) -> AttestedNodeObject:
    """Return the claim of the node."""
    return fixture.scenario.claim


def issued(csr: Csr) -> str:
    """Return the ID of the certificate that was released."""
    assert csr.certificate is not None
    return credential_id(x509.load_pem_x509_certificate(csr.certificate).public_bytes(Encoding.DER))


def alarms(
    caplog: pytest.LogCaptureFixture, reason: str = "RequesterCredentialUnknown"
) -> list[dict[str, str]]:
    """Return the fields of each alarm with this reason that was logged."""
    records = [r for r in caplog.records if r.levelname == "WARNING"]
    fields = [vars(record)["fields"] for record in records]
    return [f for f in fields if f["reason"] == reason]
