"""Real certificates and quotes of Azure's virtual machines, and the same with one field altered."""

import base64
import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
)

from common.errors import AttestationError
from common.evidence import TpmKeys
from common.tpm.attest import Attest
from common.tpm.constants import TPM_ALG_RSASSA, TPM_ALG_SHA256
from common.tpm.public import Scheme
from common.tpm.signature import Signature
from signer.errors import (
    AnswerNotBound,
    AttestationCertificateMalformed,
    AttestationCertificateMismatch,
    AttestationCertificateNotAllowed,
    AttestationCertificateOutOfDate,
    AttestationCertificateUntrusted,
    PcrDigestMismatch,
    QuoteOfOtherMachine,
    QuoteSignatureInvalid,
)
from signer.verify.attestation.attestation_key import AttestationKey
from signer.verify.attestation.quote import verify_quote
from signer.verify.attestation.quoted_pcrs import Pcrs, verify_pcrs
from signer.verify.context import VerificationContext
from signer.verify.grounds.quote_of_vm import require_quote_of_vm
from signer.verify.machines.attestation_certificate import verify_attestation_certificate
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
    return AttestationKey(public_key=key, scheme=SCHEME, tpm_name=b"\0\x0b" + bytes(32)), keys


@pytest.mark.parametrize("file", CERTIFICATES)
def test_certificates_of_both_hierarchies_are_accepted(file: str) -> None:
    assert verify_attestation_certificate(*certified(file), context()) is not None
    padded = replace(certified(file)[1], ak_certificate=(NAMED / file).read_bytes() + bytes(2000))
    assert verify_attestation_certificate(certified(file)[0], padded, context()) is not None


def flipped(content: bytes, place: int) -> bytes:
    """Return the content with another bit at this place."""
    place %= len(content)
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def spki_end(content: bytes) -> int:
    """Return a place in the modulus of the certified key."""
    key = read_fields(extract_certificate(content)).public_key
    assert key is not None
    spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return content.index(spki) + len(spki) - 10


ALTERED: dict[str, tuple[Callable[[bytes], int], type[AttestationError]]] = {
    "common name": (
        lambda content: content.index(b".TrustedVM.Azure.windows.net") - 1,
        AttestationCertificateUntrusted,
    ),
    "purpose": (
        lambda content: content.index(b"\x67\x81\x05\x08\x03") + 4,
        AttestationCertificateNotAllowed,
    ),
    "key": (spki_end, AttestationCertificateMismatch),
    "signature": (
        lambda content: len(extract_certificate(content)) - 1,
        AttestationCertificateUntrusted,
    ),
    "form": (lambda _: 0, AttestationCertificateMalformed),
}


@pytest.mark.parametrize("file", CERTIFICATES)
@pytest.mark.parametrize("field", ALTERED)
def test_a_real_certificate_with_one_field_altered_is_refused(file: str, field: str) -> None:
    place, reason = ALTERED[field]
    key, keys = certified(file)
    assert keys.ak_certificate is not None
    altered = flipped(keys.ak_certificate, place(keys.ak_certificate))
    with pytest.raises(reason):
        verify_attestation_certificate(key, replace(keys, ak_certificate=altered), context())


@pytest.mark.parametrize("file", CERTIFICATES)
def test_a_real_certificate_has_an_authority_and_an_end(file: str) -> None:
    for where, reason in (
        (context(CERTIFICATES[file]), AttestationCertificateUntrusted),
        (replace(context(), now=NOW.replace(year=2028)), AttestationCertificateOutOfDate),
    ):
        with pytest.raises(reason):
            verify_attestation_certificate(*certified(file), where)


def test_a_real_quote_by_another_key_than_the_certified_one_is_refused() -> None:
    """The machine made a key of its own, which the certificate beside the quote is not for."""
    quote, signature, pem = (
        (NAMED / f"azure-quote-2026-07-27.{kind}").read_bytes() for kind in ("msg", "sig", "pub")
    )
    certified_key, keys = certified("azure-ak-global-03.bin")
    own = load_pem_public_key(pem)
    assert isinstance(own, rsa.RSAPublicKey)
    own_key = replace(certified_key, public_key=own)
    encoded = Signature(scheme=SCHEME.algorithm, hash=SCHEME.hash, value=signature).encode()
    nonce = Attest.parse(quote).extra_data
    assert verify_quote(quote, encoded, own_key, nonce).extra_data == nonce
    with pytest.raises(QuoteSignatureInvalid):
        verify_quote(quote, encoded, certified_key, nonce)
    with pytest.raises(AttestationCertificateMismatch):
        verify_attestation_certificate(own_key, keys, context())


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


def verified_pcrs(evidence: _Evidence, nonce: bytes | None = None) -> Pcrs:
    """Verify the quote of the attestation key that the report names (Q1 to Q3)."""
    public = rsa.RSAPublicNumbers(number(evidence.report, "e"), number(evidence.report, "n"))
    key = AttestationKey(
        public_key=public.public_key(), scheme=SCHEME, tpm_name=b"\0\x0b" + bytes(32)
    )
    signature = Signature(scheme=SCHEME.algorithm, hash=SCHEME.hash, value=evidence.signature)
    nonce = nonce or Attest.parse(evidence.quote).extra_data
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


@pytest.mark.parametrize("read", [read_genoa, read_v1])
def test_a_real_quote_with_one_field_altered_is_refused(read: Callable[[], _Evidence]) -> None:
    evidence = read()
    pcrs = [flipped(value, 0) if i == 6 else value for i, value in enumerate(evidence.pcrs)]
    nonce = Attest.parse(evidence.quote).extra_data
    modulus = re.search(rb'"n":"', evidence.report)
    assert modulus is not None
    signature = flipped(evidence.signature, -1)
    report = flipped(evidence.report, modulus.end())
    altered: list[tuple[_Evidence, bytes, type[AttestationError]]] = [
        (evidence._replace(quote=flipped(evidence.quote, -1)), nonce, QuoteSignatureInvalid),
        (evidence._replace(signature=signature), nonce, QuoteSignatureInvalid),
        (evidence._replace(report=report), nonce, QuoteSignatureInvalid),
        (evidence._replace(pcrs=pcrs), nonce, PcrDigestMismatch),
        (evidence, flipped(nonce, 0), AnswerNotBound),
    ]
    for each, expected, reason in altered:
        with pytest.raises(reason):
            verified_pcrs(each, expected)
