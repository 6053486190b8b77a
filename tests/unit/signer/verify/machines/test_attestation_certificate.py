"""Real certificates and quotes of Azure's virtual machines; tests/attacks refuses altered ones."""

import base64
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from common.evidence import TpmKeys
from common.tpm.attest import Attest
from common.tpm.constants import TPM_ALG_RSASSA, TPM_ALG_SHA256
from common.tpm.public import Scheme
from common.tpm.signature import Signature
from signer.errors import AttestationCertificateUntrusted, QuoteOfOtherMachine
from signer.verify.attestation.attestation_key import AttestationKey
from signer.verify.attestation.quote import verify_quote
from signer.verify.attestation.quoted_pcrs import Pcrs, verify_pcrs
from signer.verify.context import VerificationContext
from signer.verify.machines.attestation_certificate import (
    require_quote_of_vm,
    verify_attestation_certificate,
)
from signer.verify.x509.fields import extract_certificate, read_fields
from signer.verify.x509.trust_anchors import load_trust_anchors
from tests.builders.scenario import Scenario
from tests.builders.virtual_machines import policy

NAMED = Path(__file__).parents[4] / "vectors" / "named"
NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
CERTIFICATES = {
    "azure-ak-cloud-11.der": "azure-ca-cloud-11.der",
    "azure-ak-global-03.bin": "azure-ca-global-03.der",
}
"""Each with its issuer."""
SCHEME = Scheme(algorithm=TPM_ALG_RSASSA, hash=TPM_ALG_SHA256)


def context(*left_out: str) -> VerificationContext:
    """Configure the authorities of Azure, as files on disk."""
    files = {
        path.name: path.read_bytes()
        for path in NAMED.glob("azure-ca-*")
        if path.name not in left_out
    }
    scenario = Scenario(policy=policy(), anchors=load_trust_anchors(files, {}), now=NOW)
    return scenario.context()


def certified(file: str) -> tuple[AttestationKey, TpmKeys]:
    """Return the key that a certificate is for, and what its node sends."""
    content = (NAMED / file).read_bytes()
    key = read_fields(extract_certificate(content)).public_key
    assert isinstance(key, rsa.RSAPublicKey)
    keys = TpmKeys(ek_public=b"", ek_certificates=(), ak_public=b"", ak_certificate=content)
    return AttestationKey(public_key=key, scheme=SCHEME, name=b"\0\x0b" + bytes(32)), keys


@pytest.mark.parametrize("file", CERTIFICATES)
def test_certificates_of_both_hierarchies_are_accepted(file: str) -> None:
    assert verify_attestation_certificate(*certified(file), context()) is not None
    padded = replace(certified(file)[1], ak_certificate=(NAMED / file).read_bytes() + bytes(2000))
    assert verify_attestation_certificate(certified(file)[0], padded, context()) is not None


@pytest.mark.parametrize("file", CERTIFICATES)
def test_a_certificate_needs_the_authority_that_issued_it(file: str) -> None:
    with pytest.raises(AttestationCertificateUntrusted):
        verify_attestation_certificate(*certified(file), context(CERTIFICATES[file]))


class _Evidence(NamedTuple):
    """What a virtual machine sent to another verifier."""

    quote: bytes
    signature: bytes
    pcrs: list[bytes]
    report: bytes


def read_genoa() -> _Evidence:
    evidence = json.loads((NAMED / "azure-evidence-genoa.json").read_bytes())
    quote = evidence["quote"]
    return _Evidence(
        quote=bytes(quote["message"]),
        signature=bytes(quote["signature"]),
        pcrs=[bytes(value) for value in quote["pcrs"]],
        report=bytes(evidence["report"]),
    )


def read_v1() -> _Evidence:
    evidence = json.loads((NAMED / "azure-evidence-v1.json").read_bytes())
    quote = evidence["tpm_quote"]
    return _Evidence(
        quote=bytes.fromhex(quote["message"]),
        signature=bytes.fromhex(quote["signature"]),
        pcrs=[bytes.fromhex(value) for value in quote["pcrs"]],
        report=base64.urlsafe_b64decode(evidence["hcl_report"] + "=="),
    )


def member(report: bytes, name: str) -> str:
    """Return a member of the JSON in a report: the first one of this name."""
    found = re.search(rf'"{name}":"([^"]+)"'.encode(), report)
    assert found is not None
    return found[1].decode()


def number(report: bytes, name: str) -> int:
    text = member(report, name)
    return int.from_bytes(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), "big")


def verified_pcrs(evidence: _Evidence) -> Pcrs:
    """Verify the quote of the attestation key that the report names (Q1 to Q3)."""
    public = rsa.RSAPublicNumbers(number(evidence.report, "e"), number(evidence.report, "n"))
    key = AttestationKey(public_key=public.public_key(), scheme=SCHEME, name=b"\0\x0b" + bytes(32))
    signature = Signature(scheme=SCHEME.algorithm, hash=SCHEME.hash, value=evidence.signature)
    nonce = Attest.parse(evidence.quote).extra_data
    attest = verify_quote(evidence.quote, signature.encode(), key, nonce)
    values = {"sha256": dict(enumerate(evidence.pcrs))}
    return verify_pcrs(
        attest, values, requested={"sha256": tuple(range(24))}, signature_hash=TPM_ALG_SHA256
    )


@pytest.mark.parametrize("read", [read_genoa, read_v1])
def test_a_real_quote_names_its_virtual_machine_and_no_other(read: object) -> None:
    assert callable(read)
    evidence = read()
    vm_id = member(evidence.report, "vmUniqueId").lower()
    pcrs = verified_pcrs(evidence)
    require_quote_of_vm(pcrs, vm_id)
    other = ("0" if vm_id[0] != "0" else "1") + vm_id[1:]
    with pytest.raises(QuoteOfOtherMachine):
        require_quote_of_vm(pcrs, other)
