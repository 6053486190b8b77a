"""An API server in memory that serves only CSRs, with a signer that decides them.

As in a real API server, names are unique, the server sets UIDs and
versions, and a created CSR is returned unchanged. The signer challenges offers with MakeCredential,
and issues certificates for answers whose quote is bound to their challenge. Tests set its failures.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from authenticator.errors import ClientCertificateUnusable, Unauthorized
from authenticator.model import ApiCredential, Csr, CsrRequest, KeyPair, Token
from common import evidence
from common.challenge import Challenge, encode_challenge
from common.names import (
    CHALLENGE_ANNOTATION,
    PENDING_REASON_ANNOTATION,
    SUPPORTED_VERSIONS_ANNOTATION,
)
from common.node_identity import attested_group
from common.requests.binding import answer_extra_data, sha256
from common.requests.csr import decode_request, node_subject
from common.requests.pkcs10 import OtherGeneralName, Pkcs10, parse_pkcs10
from common.tpm.attest import Attest
from common.tpm.public import PublicArea
from signer.issue.make_credential import make_credential
from tests.fakes.clock import FakeClock

CHALLENGE_KEY_ID = "0123456789abcdef"
BOOTSTRAP_USER = "system:bootstrap:abcdef"
AUTHORITY = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "cluster CA")])
SERVER_AUTH = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
GROUP = attested_group("ab" * 32, 1)
CLIENT_AUTH = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])


@dataclass
class Issuance:
    """The content of issued certificates. A test changes one field."""

    lifetime: timedelta = timedelta(days=7)
    backdated: timedelta = timedelta(minutes=5)
    usage: x509.ExtendedKeyUsage | None = CLIENT_AUTH
    authority: bool | None = False
    """None: without basic constraints."""
    names: tuple[x509.GeneralName, ...] | None = None
    """Instead of the requested names."""
    node_name: str | None = None
    organisations: tuple[str, ...] | None = None
    """By default those of the request, and in a client certificate the group of a key."""
    public_key: ec.EllipticCurvePublicKey | None = None
    text_around: bytes = b""

    def issue(self, pkcs10: bytes, key: ec.EllipticCurvePrivateKey, now: float) -> bytes:
        """Return a certificate for a request."""
        request = parse_pkcs10(pkcs10)
        names = [
            x509.NameAttribute(attribute.oid, attribute.value, _validate=False)
            for attribute in node_subject(self.node_name or request.node_name)
            if attribute.oid != NameOID.ORGANIZATION_NAME
        ]
        organisations = self.organisations
        if organisations is None:
            is_serving = self.usage is not None and self.usage != CLIENT_AUTH
            organisations = ("system:nodes", *(() if is_serving else (GROUP,)))
        names += [x509.NameAttribute(NameOID.ORGANIZATION_NAME, o) for o in organisations]
        moment = datetime.fromtimestamp(now, UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name(names))
            .issuer_name(AUTHORITY)
            .public_key(self.public_key or request.public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(moment - self.backdated)
            .not_valid_after(moment + self.lifetime)
        )
        if self.authority is not None:
            constraints = x509.BasicConstraints(ca=self.authority, path_length=None)
            builder = builder.add_extension(constraints, critical=True)
        if self.usage is not None:
            builder = builder.add_extension(self.usage, critical=False)
        names_in_it = _general_names(request) if self.names is None else self.names
        if names_in_it:
            san = x509.SubjectAlternativeName(names_in_it)
            builder = builder.add_extension(san, critical=False)
        certificate = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
        return self.text_around + certificate + self.text_around


def _general_names(request: Pkcs10) -> tuple[x509.GeneralName, ...]:
    names = request.subject_alt_names or ()
    assert not any(isinstance(name, OtherGeneralName) for name in names)
    return tuple(
        x509.DNSName(name) if isinstance(name, str) else x509.IPAddress(name)
        for name in names
        if not isinstance(name, OtherGeneralName)
    )


@dataclass
class FakeWorkload:
    """The CSRs of a workload cluster. A signer reconciles them each time a caller waits.

    Each of the next calls raises one of `errors`. `on_wait` runs before the signer.
    """

    clock: FakeClock
    skew: float = 0.0
    """The cluster's clock is ahead of the node's by this."""
    tokens: set[str] = field(default_factory=lambda: {"abcdef.0123456789abcdef"})
    revoked: set[bytes] = field(default_factory=set)
    unusable: set[bytes] = field(default_factory=set)
    """Certificates with which no TLS connection can be made."""
    csrs: dict[str, Csr] = field(default_factory=dict)
    filed_by: dict[str, str] = field(default_factory=dict)
    issuance: Issuance = field(default_factory=Issuance)
    signer_is_away: bool = False
    deny: dict[str, tuple[str, str]] = field(default_factory=dict)
    """"offer" or "answer" to reason and message."""
    deny_requesters: dict[str, tuple[str, str]] = field(default_factory=dict)
    """User name of a requester to reason and message."""
    fail: dict[str, tuple[str, str]] = field(default_factory=dict)
    wait: dict[str, str] = field(default_factory=dict)
    """"offer" or "answer" to pending-reason."""
    event_log: bool = False
    pcr_signatures: bool = False
    change_challenge: Callable[[str], str] = str
    known_as: str | None = None
    """The user name in SelfSubjectReviews, where that is not the requester's."""
    has_self_subject_review: bool = True
    """False: before Kubernetes 1.28."""
    has_date: bool = True
    may_create_csrs: bool = True
    review_errors: list[Exception] = field(default_factory=list)
    """Raised by the next SelfSubjectReviews, one each."""
    errors: list[Exception] = field(default_factory=list)
    watches_end_at_once: bool = False
    on_wait: Callable[[], None] = lambda: None
    calls: list[str] = field(default_factory=list)
    answers: list[evidence.Answer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._secrets: dict[str, bytes] = {}

    def authority(self) -> str:
        moment = datetime.fromtimestamp(self.clock.now(), UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(AUTHORITY)
            .issuer_name(AUTHORITY)
            .public_key(self._key.public_key())
            .serial_number(1)
            .not_valid_before(moment)
            .not_valid_after(moment + timedelta(days=3650))
        )
        certificate = builder.sign(self._key, hashes.SHA256())
        return certificate.public_bytes(Encoding.PEM).decode()

    def connect(self, requester: ApiCredential) -> "FakeCsrApi":
        """Return the API for one requester."""
        if isinstance(requester, KeyPair) and requester.certificate in self.unusable:
            raise ClientCertificateUnusable("cannot be read")
        return FakeCsrApi(self, requester)

    def authenticate(self, requester: ApiCredential) -> str:
        """Return the requester's user name. Raises Unauthorized."""
        if isinstance(requester, Token):
            if requester.token in self.tokens:
                return BOOTSTRAP_USER
            raise Unauthorized("401")
        leaf = x509.load_pem_x509_certificates(requester.certificate)[0]
        now = datetime.fromtimestamp(self.clock.now() + self.skew, UTC)
        ends = leaf.not_valid_after_utc
        if requester.certificate in self.revoked or not leaf.not_valid_before_utc <= now < ends:
            raise Unauthorized("401")
        return str(leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)

    def annotate(self, name: str, key: str, value: str) -> None:
        csr = self.csrs[name]
        self.update(replace(csr, annotations={**csr.annotations, key: value}))

    def update(self, csr: Csr) -> None:
        """Write a CSR with a new resourceVersion."""
        version = str(int(csr.resource_version) + 1)
        self.csrs[csr.spec.name] = replace(csr, resource_version=version)

    def reconcile(self) -> None:
        for csr in list(self.csrs.values()):
            decided = {"Denied", "Failed"} & set(csr.conditions) or csr.certificate
            if not decided and not self.signer_is_away:
                pkcs10, data = decode_request(csr.spec.request)
                self._decide(csr, pkcs10, evidence.decode_attestation_data(data))

    def _decide(self, csr: Csr, pkcs10: bytes, data: evidence.Offer | evidence.Answer) -> None:
        kind = "answer" if isinstance(data, evidence.Answer) else "offer"
        if kind in self.wait:
            if csr.annotations.get(PENDING_REASON_ANNOTATION) != self.wait[kind]:
                self.annotate(csr.spec.name, PENDING_REASON_ANNOTATION, self.wait[kind])
        elif self.filed_by[csr.spec.name] in self.deny_requesters:
            why = self.deny_requesters[self.filed_by[csr.spec.name]]
            self._condition(csr.spec.name, "Denied", why)
        elif kind in self.deny:
            self.annotate(csr.spec.name, SUPPORTED_VERSIONS_ANNOTATION, "v2")
            self._condition(csr.spec.name, "Denied", self.deny[kind])
        elif kind in self.fail:
            self._condition(csr.spec.name, "Failed", self.fail[kind])
        elif isinstance(data, evidence.Answer):
            self._verdict(csr, pkcs10, data)
        elif CHALLENGE_ANNOTATION not in csr.annotations:
            challenge = self.change_challenge(self._challenge(csr, data))
            self.annotate(csr.spec.name, CHALLENGE_ANNOTATION, challenge)

    def _condition(self, name: str, condition: str, why: tuple[str, str]) -> None:
        csr = self.csrs[name]
        self.update(replace(csr, conditions={**csr.conditions, condition: why}))

    def _challenge(self, csr: Csr, offer: evidence.Offer) -> str:
        secret = self._secrets.setdefault(csr.uid, csr.uid.replace("-", "").encode())
        blob, encrypted = make_credential(
            PublicArea.from_tpm2b(offer.ek_public),
            PublicArea.from_tpm2b(offer.ak_public).name(),
            secret,
            random=lambda size: b"\x5a" * size,
        )
        return encode_challenge(
            Challenge(
                issued_at=datetime.fromtimestamp(self.clock.now() + self.skew, UTC).strftime(
                    "%Y-%m-%dT%H:%M:%SZ"
                ),
                key=CHALLENGE_KEY_ID,
                credential_blob=blob,
                encrypted_secret=encrypted,
                pcrs={"sha256": (0, 7)},
                event_log=self.event_log,
                pcr_signatures=self.pcr_signatures,
                tag="tag",
            )
        )

    def _verdict(self, csr: Csr, pkcs10: bytes, answer: evidence.Answer) -> None:
        """Issue a certificate if the answer is bound to its challenge, its name and its spec."""
        self.answers.append(answer)
        expected = answer_extra_data(
            self._secrets.get(answer.challenge.uid, b""),
            name=csr.spec.name,
            pkcs10_sha256=sha256(pkcs10),
            expiration_seconds=csr.spec.expiration_seconds,
            usages=csr.spec.usages,
            members=answer.challenge.members,
        )
        if Attest.parse(answer.quote).extra_data != expected:
            self._condition(csr.spec.name, "Denied", ("AnswerNotBound", "not for this challenge"))
            return
        now = self.clock.now() + self.skew
        certificate = self.issuance.issue(pkcs10, self._key, now)
        approved = {**csr.conditions, "Approved": ("Attested", "")}
        self.update(replace(csr, conditions=approved, certificate=certificate))

    def called(self, method: str) -> None:
        """Record a call; raise the next of `errors`."""
        self.calls.append(method)
        if self.errors:
            raise self.errors.pop(0)


class FakeCsrApi:
    """`model.CsrApi` for one requester."""

    def __init__(self, cluster: FakeWorkload, requester: ApiCredential) -> None:
        self._cluster = cluster
        self._requester = requester

    def create(self, request: CsrRequest) -> Csr:
        user = self._called("create")
        if request.name not in self._cluster.csrs:
            self._cluster.filed_by[request.name] = user
            self._cluster.csrs[request.name] = Csr(
                uid=str(uuid.uuid4()),
                resource_version="1",
                spec=request,
                annotations={},
                conditions={},
                certificate=None,
            )
        return self._cluster.csrs[request.name]

    def get(self, name: str) -> Csr | None:
        self._called("get")
        return self._cluster.csrs.get(name)

    def wait_for_change(self, csr: Csr, seconds: float) -> Csr | None:
        """If nothing has changed, the clock moves on."""
        self._called("wait_for_change")
        self._cluster.on_wait()
        self._cluster.reconcile()
        present = self._cluster.csrs.get(csr.spec.name)
        no_news = present is not None and present.resource_version == csr.resource_version
        if no_news and not self._cluster.watches_end_at_once:
            self._cluster.clock.pass_time(seconds)
        return present

    def self_subject_review(self) -> str | None:
        user = self._called("self_subject_review")
        if self._cluster.review_errors:
            raise self._cluster.review_errors.pop(0)
        return (self._cluster.known_as or user) if self._cluster.has_self_subject_review else None

    def server_time(self) -> float | None:
        self._cluster.called("server_time")
        now = self._cluster.clock.now() + self._cluster.skew
        return now if self._cluster.has_date else None

    def can_create_csrs(self) -> bool:
        self._called("can_create_csrs")
        return self._cluster.may_create_csrs

    def _called(self, method: str) -> str:
        self._cluster.called(method)
        return self._cluster.authenticate(self._requester)
