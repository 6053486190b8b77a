"""Answers of several kinds of nodes, and the bare cryptographic calls that each one needs.

Bare calls are: loading each key of an answer, and the arithmetic that finds weak keys; the
signatures of the request and the quote; the digests of request, endorsement key, attestation key
and PCRs; the HMACs for key ID, challenge and answer. If the policy checks certificates, each
signature up to the root is added. If a certificate is issued, its signature is added.
"""

import hashlib
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key

from common.evidence import Answer, decode_attestation_data
from common.public_keys import PublicKey, public_key_from_area
from common.requests.csr import decode_request
from common.tpm.public import EccPoint, PublicArea
from common.tpm.signature import Signature
from signer.issue.authority import CertificateAuthority
from signer.model import Csr
from signer.policy.policy import EndorsementKeyRules, Policy, TrustMode
from signer.verify.weak_keys import reject_weak_key
from tests.builders import certificates, der
from tests.builders.scenario import Scenario
from tests.builders.software_tpm import AK_KINDS, attestation_key, endorsement_key

Call = Callable[[], object]
_SHA256 = hashes.SHA256()
_MESSAGE = bytes(300)
"""Approximate size of the HMACs' input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node that answers, and the issuer of its certificate if issuance is measured as well."""

    about: str
    world: Scenario
    chain: Sequence[certificates.Issuer] = ()
    """The chain above its endorsement certificate, from the issuer to the root."""
    authority: CertificateAuthority | None = None
    csr: Csr = field(init=False)

    def __post_init__(self) -> None:
        """Make the offer, the challenge and the answer."""
        object.__setattr__(self, "csr", self.world.answer_csr())

    def bare(self) -> Callable[[], None]:
        """Return one function that makes all bare calls."""
        calls = [*_of_request(self.csr), *_of_answer(self.csr), *_of_digests(self.csr)]
        if self.chain:
            calls += _of_chain(self.world.certificates[0], self.chain)
        if self.authority is not None:
            calls.append(_signing(self.authority))

        def run() -> None:
            for call in calls:
                call()

        return run


def ordinary(about: str, template: int) -> Node:
    """Make the usual node: a new P-256 key, an ECDSA attestation key, and one endorsement key."""
    return Node(about=about, world=Scenario(ek=endorsement_key(template)))


def rsa_only(about: str) -> Node:
    """Make a node whose TPM has no ECC."""
    ak = attestation_key(AK_KINDS["rsassa-2048-sha256"])
    return Node(about=about, world=Scenario(ek=endorsement_key(0), ak=ak))


def certified(about: str, root: certificates.Issuer, below: certificates.Issuer) -> Node:
    """Make the usual node, whose RSA endorsement key is trusted for its certificate."""
    policy = Policy(
        name="bench",
        endorsement_key=EndorsementKeyRules(
            trust=TrustMode.CERTIFIED, certificate_authorities=("-",)
        ),
    )
    world = Scenario(ek=endorsement_key(0), policy=policy)
    world.anchors = certificates.anchors(root, below)
    world.certificates = (certificates.leaf(below, public_key_from_area(world.ek.public)),)
    return Node(about=about, world=world, chain=(below, root))


def issued(about: str, authority: certificates.Issuer) -> Node:
    """Make the usual node, and an authority that issues its certificate."""
    made = CertificateAuthority(certificate=authority.certificate, private_key=authority.key)
    return Node(about=about, world=Scenario(ek=endorsement_key(0)), authority=made)


def _evidence(csr: Csr) -> Answer:
    evidence = decode_attestation_data(decode_request(csr.request)[1])
    assert isinstance(evidence, Answer)
    return evidence


def _of_request(csr: Csr) -> list[Call]:
    """Load the kubelet's key, and check its signature."""
    signed, _, signature = der.parse(decode_request(csr.request)[0]).children
    spki, bits = signed.children[2].der, der.whole_bits(signature)

    def check() -> None:
        key = load_der_public_key(spki)
        assert isinstance(key, rsa.RSAPublicKey | ec.EllipticCurvePublicKey)
        reject_weak_key(key)
        _verify(key, bits, signed.der)

    return [check]


def _of_answer(csr: Csr) -> list[Call]:
    """Load the attestation key, and check its signature."""
    evidence = _evidence(csr)
    load = _loading(PublicArea.from_tpm2b(evidence.ak_public))
    signature = Signature.parse(evidence.signature).x509()

    def check() -> None:
        key = load()
        reject_weak_key(key)
        _verify(key, signature, evidence.quote)

    return [check]


def _of_digests(csr: Csr) -> list[Call]:
    """Load and name the endorsement key, digest the other values, and derive the expected ones."""
    evidence = _evidence(csr)
    load = _loading(PublicArea.from_tpm2b(evidence.ek_public))
    spki = PublicFormat.SubjectPublicKeyInfo
    pcrs = b"".join(value for values in evidence.pcrs.values() for value in values.values())
    named = (decode_request(csr.request)[0], evidence.ak_public, pcrs)

    def name() -> None:
        key = load()
        reject_weak_key(key)
        hashlib.sha256(key.public_bytes(Encoding.DER, spki)).digest()

    return [
        name,
        *(lambda data=data: hashlib.sha256(data).digest() for data in named),
        *[lambda: hmac.digest(bytes(32), _MESSAGE, "sha256")] * 3,
    ]


def _of_chain(leaf: bytes, chain: Sequence[certificates.Issuer]) -> list[Call]:
    """Load the endorsement certificate, and check each signature."""
    issuer, *_ = issuers = [each.certificate for each in chain]
    links = list(pairwise(issuers))
    return [
        lambda: x509.load_der_x509_certificate(leaf).verify_directly_issued_by(issuer),
        *(lambda a=a, b=b: a.verify_directly_issued_by(b) for a, b in links),
    ]


def _signing(authority: CertificateAuthority) -> Call:
    key = authority.private_key
    if isinstance(key, rsa.RSAPrivateKey):
        return lambda: key.sign(_MESSAGE, padding.PKCS1v15(), _SHA256)
    return lambda: key.sign(_MESSAGE, ec.ECDSA(_SHA256))


def _loading(public: PublicArea) -> Callable[[], PublicKey]:
    """Load a key from its numbers, in the form of a TPM's public area."""
    unique = public.unique
    if isinstance(unique, EccPoint):
        x, y = (int.from_bytes(coordinate, "big") for coordinate in (unique.x, unique.y))
        return lambda: ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()
    n = int.from_bytes(unique, "big")
    return lambda: rsa.RSAPublicNumbers(65537, n).public_key()


def _verify(key: PublicKey, signature: bytes, data: bytes) -> None:
    if isinstance(key, rsa.RSAPublicKey):
        key.verify(signature, data, padding.PKCS1v15(), _SHA256)
    else:
        key.verify(signature, data, ec.ECDSA(_SHA256))
