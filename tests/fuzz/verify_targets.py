"""Fuzz targets: the signer's parsers of what a node sends."""

from functools import cache

from cryptography.hazmat.primitives.asymmetric import ec

from common.errors import Denied
from common.formats.pem import encode_block
from common.names import PEM_REQUEST
from common.public_keys import public_key_from_area
from common.tpm.attest import Attest
from common.tpm.reader import StructureMalformed
from signer.errors import (
    EndorsementCertificateMalformed,
    EndorsementCertificateMismatch,
    EndorsementCertificateMissing,
    EndorsementCertificateNotAllowed,
    EndorsementCertificateOutOfDate,
    EndorsementCertificateUntrusted,
    EventLogMalformed,
    EventLogPolicyMismatch,
    PcrBankUnavailable,
    PcrDigestMismatch,
    PcrSelectionMismatch,
    PcrSignaturesMalformed,
    QuoteMalformed,
)
from signer.issue.make_credential import make_credential
from signer.policy.policy import AttestationKeyRules, EventLogRules, PcrSignatureRules, Policy
from signer.policy.signed_pcr_rules import fingerprint
from signer.verify.attestation.attestation_key import verify_attestation_key
from signer.verify.attestation.endorsement_key import verify_endorsement_key
from signer.verify.attestation.event_log import parse_event_log
from signer.verify.attestation.measured_boot import verify_event_log
from signer.verify.attestation.quote import verify_quote
from signer.verify.attestation.quoted_pcrs import verify_pcrs
from signer.verify.attestation.signed_pcrs import is_signed_by_vendor
from signer.verify.requests.parse import parse_request
from signer.verify.requests.recognize import CsrKind
from signer.verify.x509.endorsement_certificate import (
    find_endorsement_certificate,
    verify_endorsement_certificate,
)
from signer.verify.x509.tpm_identity import read_tpm_identity
from signer.verify.x509.trust_anchors import TrustAnchors
from tests.builders import certificates, event_logs
from tests.builders.boot_signatures import signature_file, signature_of
from tests.builders.scenario import NOW
from tests.builders.software_tpm import AK_KINDS, attestation_key, endorsement_key
from tests.fuzz.mutations import Form
from tests.fuzz.shared_targets import requests, scenario
from tests.fuzz.target import Refused, Target

POLICY = Policy(name="fuzz", attestation_key=AttestationKeyRules(schemes=frozenset(AK_KINDS)))
CERTIFICATE_ERRORS = (
    *(EndorsementCertificateMissing, EndorsementCertificateMalformed),
    *(EndorsementCertificateMismatch, EndorsementCertificateUntrusted),
    *(EndorsementCertificateNotAllowed, EndorsementCertificateOutOfDate),
)
QUOTE_ERRORS = (QuoteMalformed, PcrBankUnavailable, PcrSelectionMismatch, PcrDigestMismatch)


def _request(data: bytes) -> None:
    """Parse the text as each kind of request.

    Those for the built-in signer have a single PEM block.
    """
    csr = scenario().csr(data)
    accepted = set()
    for kind in CsrKind:
        try:
            parsed = parse_request(csr, kind)
        except Denied:
            continue
        assert parsed.request.node_name
        accepted.add(kind)
    if not accepted:
        raise Refused
    assert (CsrKind.BUILTIN_SERVING in accepted) is (
        len(accepted) == 1 and data.count(b"BEGIN") == 1
    )


def _texts() -> list[bytes]:
    world = scenario()
    builtin = encode_block(PEM_REQUEST, requests()[-1])
    return [world.offer_csr().request, world.answer_csr().request, builtin]


def _endorsement_key(data: bytes) -> None:
    """Make a challenge for each accepted endorsement key."""
    key = verify_endorsement_key(data)
    make_credential(key.public, b"\0\x0b" + bytes(32), bytes(32), random=lambda n: b"\1" * n)
    assert len(key.name) == 64
    assert key.pem


def _endorsement_keys() -> list[bytes]:
    return [endorsement_key(template).tpm2b for template in (0, 1, 2, 3, 4)]


def _attestation_key(data: bytes) -> None:
    assert verify_attestation_key(data, POLICY.attestation_key.schemes).tpm_name[:2] == b"\0\x0b"


def _attestation_keys() -> list[bytes]:
    kinds = ("ecdsa-p256-sha256", "ecdsa-p384-sha384", "rsassa-2048-sha256", "rsapss-2048-sha256")
    return [attestation_key(AK_KINDS[kind]).tpm2b for kind in kinds]


def _quote(data: bytes) -> None:
    """Sign the input with the expected extraData, so that only form and PCRs are checked."""
    world = scenario()
    key = verify_attestation_key(world.ak.tpm2b, POLICY.attestation_key.schemes)
    try:
        bound = Attest.parse(data).extra_data
    except StructureMalformed:
        bound = b""
    attest = verify_quote(data, world.ak.sign(data), key, bound)
    selection = POLICY.pcrs.selection
    verify_pcrs(attest, world.pcrs, requested=selection, signature_hash=key.scheme.hash)


def _certificate(data: bytes) -> None:
    """Use the input as an additional certificate, then as the certificate of the key.

    Read first what it says about the TPM: no authority has signed that.
    """
    key = public_key_from_area(scenario().ek.public)
    certificate = find_endorsement_certificate((data,), key)
    if certificate is not None:
        read_tpm_identity(certificate)
    verify_endorsement_certificate((_leaf(), data), key, anchors=_anchors(), now=NOW)
    verify_endorsement_certificate((data,), key, anchors=_anchors(), now=NOW)


@cache
def vendor() -> tuple[certificates.Issuer, certificates.Issuer]:
    """Make a vendor's root and the authority below it, on the fastest curve."""
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    root = certificates.authority("Vendor Root CA", key=keys[0])
    return root, certificates.authority("Vendor TPM CA 01", root, key=keys[1])


@cache
def _leaf() -> bytes:
    return certificates.leaf(vendor()[1], public_key_from_area(scenario().ek.public))


@cache
def _anchors() -> TrustAnchors:
    return certificates.anchors(*vendor())


def leaves() -> list[bytes]:
    """Return endorsement certificates, bare and in the form of an NV index."""
    header = b"\x10\x01\0" + (len(_leaf()) + 2).to_bytes(2, "big") + b"\x10\x02"
    return [_leaf(), header + _leaf() + b"\xff" * 9]


def _event_log(data: bytes) -> None:
    """Quote the PCRs that the log replays to, so that the rules run."""
    log = parse_event_log(data)
    pcrs = {bank: {pcr: log.replay(bank, pcr) for pcr in range(8)} for bank in sorted(log.banks)}
    if not pcrs:
        raise Refused
    shim = event_logs.application(b"shim").digest("sha256")
    for secure_boot in (True, False):
        rules = EventLogRules(
            secure_boot=secure_boot,
            platform_keys=frozenset(),
            signature_databases=frozenset(),
            boot_loaders=frozenset() if secure_boot else frozenset({shim}),
        )
        verify_event_log(data, pcrs, rules)


def _event_logs() -> list[bytes]:
    booted = event_logs.firmware()
    booted.remove(event_logs.application(b"kernel"))
    located = [event_logs.startup_locality(3), *booted]
    return [event_logs.log_of(located), event_logs.log_of(booted, ("sha1", "sha256"))]


IMAGE = {"sha256": {11: bytes(32)}}


@cache
def _image_vendor() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _pcr_signatures(data: bytes) -> None:
    key = _image_vendor().public_key()
    rules = PcrSignatureRules(
        keys={fingerprint(key): key}, pcrs={"sha256": (11,)}, revoked=frozenset()
    )
    if not is_signed_by_vendor(IMAGE, rules, data):
        raise Refused


def _signature_files() -> list[bytes]:
    entry = signature_of(_image_vendor(), IMAGE["sha256"])
    return [signature_file(entry), signature_file({**entry, "pkfp": "00"}, entry)]


TARGETS = (
    Target(name="request", run=_request, seeds=_texts, form=Form.PEM),
    Target(name="endorsement-key", run=_endorsement_key, seeds=_endorsement_keys, errors=(Denied,)),
    Target(name="attestation-key", run=_attestation_key, seeds=_attestation_keys, errors=(Denied,)),
    Target(
        name="quote",
        run=_quote,
        seeds=lambda: [scenario().attest().encode()],
        errors=QUOTE_ERRORS,
    ),
    Target(
        name="endorsement-certificate",
        run=_certificate,
        seeds=leaves,
        errors=CERTIFICATE_ERRORS,
        form=Form.DER,
    ),
    Target(
        name="event-log",
        run=_event_log,
        seeds=_event_logs,
        errors=(EventLogMalformed, EventLogPolicyMismatch),
    ),
    Target(
        name="pcr-signatures",
        run=_pcr_signatures,
        seeds=_signature_files,
        errors=(PcrSignaturesMalformed,),
        form=Form.JSON,
    ),
)
