"""Answers of several kinds of nodes, and the bare cryptographic calls that each one needs.

Bare calls are: loading each key of an answer, and the arithmetic that finds weak keys; the
signatures of the request and the quote; the digests of request, endorsement key, attestation key
and PCRs; the HMACs for key ID, challenge and answer. If the policy checks certificates, each
signature up to the root is added. If a platform certifies the attestation key, its statement about
the endorsement key is added, and if a vendor signs PCR values, its signature of them. If a
certificate is issued, its signature is added.
"""

import base64
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
from signer.kinds.csr import Csr
from signer.policy.policy import (
    CertificateNameRules,
    EndorsementKeyRules,
    PcrMode,
    PcrSignatureRules,
    Policy,
    TrustMode,
)
from signer.policy.signed_pcr_rules import fingerprint
from signer.verify.weak_keys import reject_weak_key
from tests.builders import certificates, der, virtual_machines
from tests.builders.boot_signatures import signature_file, signature_of
from tests.builders.machine_names import GCE_ID, PROJECT, gce_extension, named_leaf
from tests.builders.scenario import Scenario
from tests.builders.software_tpm import (
    AK_KINDS,
    attestation_key,
    endorsement_key,
    pcr_values,
    rsa_key,
)
from tests.builders.virtual_machines import VM_ID, ak_certificate, creation_of, pcr_6

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
    """The chain above the certificate of its endorsement or attestation key, up to the root."""
    more: Sequence[Call] = ()
    """More bare calls."""
    authority: CertificateAuthority | None = None
    csr: Csr = field(init=False)

    def __post_init__(self) -> None:
        """Make the offer, the challenge and the answer."""
        object.__setattr__(self, "csr", self.world.answer_csr())

    def bare(self) -> Callable[[], None]:
        """Return one function that makes all bare calls."""
        calls = [*_of_request(self.csr), *_of_answer(self.csr), *_of_digests(self.csr), *self.more]
        if self.chain:
            leaf = self.world.ak_certificate or self.world.certificates[0]
            calls += _of_chain(leaf, self.chain)
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


def _certified(root: certificates.Issuer, below: certificates.Issuer) -> Scenario:
    policy = Policy(
        name="bench",
        endorsement_key=EndorsementKeyRules(
            trust=TrustMode.CERTIFIED, certificate_authorities=("-",)
        ),
    )
    return Scenario(ek=endorsement_key(0), policy=policy, anchors=certificates.anchors(root, below))


def certified(about: str, root: certificates.Issuer, below: certificates.Issuer) -> Node:
    """Make the usual node, whose RSA endorsement key is trusted for its certificate."""
    world = _certified(root, below)
    world.certificates = (certificates.leaf(below, public_key_from_area(world.ek.public)),)
    return Node(about=about, world=world, chain=(below, root))


def named(about: str, root: certificates.Issuer, below: certificates.Issuer) -> Node:
    """Make an instance of Google that its certificate names."""
    world = _certified(root, below)
    names = CertificateNameRules(gce_projects=frozenset({PROJECT}))
    world.change_policy("endorsement_key", certificate_names=names)
    key = public_key_from_area(world.ek.public)
    world.certificates = (named_leaf(below, key, extension=gce_extension()),)
    world.provider_id = GCE_ID
    world.change_machine(provider_id=GCE_ID, registered_keys=())
    return Node(about=about, world=world, chain=(below, root))


def virtual_machine(about: str, root: certificates.Issuer, below: certificates.Issuer) -> Node:
    """Make a virtual machine whose attestation key is certified, and whose quote names it."""
    ak, ek = attestation_key(AK_KINDS["rsassa-2048-sha256"]), endorsement_key(0)
    statement = creation_of(ek, ak)
    world = Scenario(
        ek=ek,
        ak=ak,
        ak_certificate=ak_certificate(below, ak.private.public_key()),
        ek_creation=statement,
        anchors=certificates.anchors(root, below),
        policy=virtual_machines.policy(),
    )
    world.pcrs = pcr_values(world.policy.pcrs.selection)
    world.pcrs = {"sha256": {**world.pcrs["sha256"], 6: pcr_6()}}
    world.change_machine(registered_keys=(), vm_id=VM_ID)
    key, signature = ak.private.public_key(), Signature.parse(statement.signature).x509()
    assert isinstance(key, rsa.RSAPublicKey)
    return Node(
        about=about,
        world=world,
        chain=(below, root),
        more=[lambda: _verify(key, signature, statement.attest)],
    )


def signed_image(about: str) -> Node:
    """Make the usual node, whose vendor signs PCR 11."""
    vendor = rsa_key(2048, 4)
    public, value = vendor.public_key(), bytes(31) + b"\1"
    entry = signature_of(vendor, {11: value})
    rules = PcrSignatureRules(
        keys={fingerprint(public): public}, pcrs={"sha256": (11,)}, revoked=frozenset()
    )
    world = Scenario(ek=endorsement_key(0), pcr_signatures=signature_file(entry))
    world.change_policy("pcrs", selection={"sha256": (11,)}, mode=PcrMode.ENFORCE)
    world.change_policy("pcrs", signed_by=(rules,))
    world.pcrs = {"sha256": {11: value}}
    signature, digest = base64.b64decode(str(entry["sig"])), bytes.fromhex(str(entry["pol"]))
    return Node(about=about, world=world, more=[lambda: _verify(public, signature, digest)])


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
