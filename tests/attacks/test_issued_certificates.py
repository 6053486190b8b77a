"""What leaves the signer: certificates that say something else than what was verified.

Here the signer's own builder is the attacker: a fault of it, of a library or of memory puts one
wrong field into the certificate of an answer that passes every check. The bytes are looked at
before they are claimed and written, so nobody gets the certificate, and the claim stays as it was.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_address
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from common.node_identity import attested_group
from signer.errors import CertificateNotAsVerified
from signer.issue.authority import CertificateAuthority
from signer.issue.leaf import sign_leaf as build
from signer.issue.lint import ExpectedCertificate, lint_certificate
from tests.attacks.runner import assert_issued, reconcile_once
from tests.builders.reconciler import authority
from tests.builders.scenario import NODE, NOW, Scenario, key_name

ADDRESS = "192.0.2.11"
WEEK = timedelta(days=7)
OTHER_KEY = ec.generate_private_key(ec.SECP256R1())


def serving() -> Scenario:
    """Request a serving certificate for a name and an address of the Machine."""
    scenario = Scenario()
    scenario.for_serving(NODE, ADDRESS)
    return scenario


@dataclass
class Parts:
    """The parts of a certificate, to be changed."""

    subject: Sequence[tuple[x509.ObjectIdentifier, str]]
    serial: int
    starts: Any
    ends: Any
    key: Any
    extensions: dict[type[x509.ExtensionType], tuple[x509.ExtensionType, bool]]
    signing_key: Any

    def sign(self, issuer: x509.Name) -> x509.Certificate:
        """Sign the parts."""
        names = [x509.NameAttribute(oid, value, _validate=False) for oid, value in self.subject]
        made = (
            x509.CertificateBuilder()
            .issuer_name(issuer)
            .subject_name(x509.Name(names))
            .public_key(self.key)
            .serial_number(self.serial)
            .not_valid_before(self.starts)
            .not_valid_after(self.ends)
        )
        for value, critical in self.extensions.values():
            made = made.add_extension(value, critical=critical)
        return made.sign(self.signing_key, hashes.SHA256())


Change = Callable[[Parts], object]


def subject(*names: tuple[x509.ObjectIdentifier, str]) -> Change:
    return value(subject=names)


def value(**parts: Any) -> Change:  # noqa: ANN401 # values of any part
    return lambda made: vars(made).update(parts)


def extension(new: x509.ExtensionType, *, critical: bool) -> Change:
    return lambda parts: parts.extensions.update({type(new): (new, critical)})


def without(kind: type[x509.ExtensionType]) -> Change:
    return lambda parts: parts.extensions.pop(kind)


def usage(**bits: bool) -> Change:
    names = ("content_commitment", "data_encipherment", "key_agreement", "key_cert_sign")
    none = dict.fromkeys((*names, "key_encipherment", "crl_sign"), False)
    flags = none | {"digital_signature": True, "encipher_only": False, "decipher_only": False}
    return extension(x509.KeyUsage(**(flags | bits)), critical=True)


def purposes(*oids: x509.ObjectIdentifier) -> Change:
    return extension(x509.ExtendedKeyUsage(oids), critical=False)


def names(*names: str) -> Change:
    values = [x509.DNSName(n) if n[0].isalpha() else x509.IPAddress(ip_address(n)) for n in names]
    return extension(x509.SubjectAlternativeName(values), critical=False)


ORG, CN = NameOID.ORGANIZATION_NAME, NameOID.COMMON_NAME
NODES, SELF = (ORG, "system:nodes"), (CN, f"system:node:{NODE}")
KEY = key_name(Scenario().ek)
GROUP = (ORG, attested_group(KEY, 1))
CLIENT_AUTH, SERVER_AUTH = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH
WRONG: Mapping[str, Mapping[str, Change]] = {
    "subject": {
        "another node": subject(NODES, GROUP, (CN, "system:node:node-2")),
        "an administrator": subject(NODES, GROUP, SELF, (ORG, "system:masters")),
        "a group twice": subject(NODES, NODES, GROUP, SELF),
        "no group of nodes": subject(GROUP, SELF),
        "no group of a key": subject(NODES, SELF),
        "the group of another key": subject(NODES, (ORG, attested_group("0" * 64, 1)), SELF),
        "another term": subject(NODES, (ORG, attested_group(KEY, 2)), SELF),
        "two names": subject(NODES, GROUP, (CN, "kubernetes-admin"), SELF),
        "another field": subject(NODES, GROUP, SELF, (NameOID.ORGANIZATIONAL_UNIT_NAME, "x")),
    },
    "serial number": {"a serial number that is a counter": value(serial=7)},
    "start": {
        "a start in the future": value(starts=NOW + timedelta(seconds=1)),
        "a start before the authority's": value(
            starts=authority().certificate.not_valid_before_utc - timedelta(seconds=1)
        ),
    },
    "end": {
        "a longer life than the policy's": value(ends=NOW + WEEK + timedelta(seconds=1)),
        "an end in the past": value(ends=NOW),
    },
    "public key": {"another key": value(key=OTHER_KEY.public_key())},
    "basic constraints": {
        "an authority": extension(x509.BasicConstraints(ca=True, path_length=None), critical=True),
        "no constraint": without(x509.BasicConstraints),
    },
    "key usage": {
        "a usage of authorities": usage(key_cert_sign=True),
        "encipherment without RSA": usage(key_encipherment=True),
    },
    "extended key usage": {
        "a usage of servers": purposes(SERVER_AUTH),
        "a usage of clients and servers": purposes(CLIENT_AUTH, SERVER_AUTH),
        "any usage": purposes(ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE),
        "no purpose": without(x509.ExtendedKeyUsage),
    },
    "authority key identifier": {"no key identifier": without(x509.AuthorityKeyIdentifier)},
    "names": {"a name of servers": names(NODE)},
    "other extensions": {
        "another extension": extension(x509.OCSPNoCheck(), critical=False),
    },
    "InvalidSignature": {"another authority's signature": value(signing_key=OTHER_KEY)},
}
WRONG_NAMES: Mapping[str, Change] = {
    "one name more": names(NODE, "node-2.example", ADDRESS),
    "one name less": names(NODE),
    "the name of another": names("node-2.example", ADDRESS),
    "no names": without(x509.SubjectAlternativeName),
}
CASES = [
    *((Scenario, rule, what, change) for rule in WRONG for what, change in WRONG[rule].items()),
    *((serving, "names", what, change) for what, change in WRONG_NAMES.items()),
    (serving, "extended key usage", "a usage of clients", purposes(CLIENT_AUTH)),
    (serving, "subject", "the group of a key", subject(NODES, GROUP, SELF)),
]


def wrong_builder(change: Change) -> Callable[..., x509.Certificate]:
    """Return the builder of certificates with a fault."""

    def sign_leaf(*args: Any, authority: CertificateAuthority, **kwargs: Any) -> x509.Certificate:  # noqa: ANN401 # as the builder's
        good = build(*args, authority=authority, **kwargs)
        parts = Parts(
            subject=[(a.oid, str(a.value)) for a in good.subject],
            serial=good.serial_number,
            starts=good.not_valid_before_utc,
            ends=good.not_valid_after_utc,
            key=good.public_key(),
            extensions={type(e.value): (e.value, e.critical) for e in good.extensions},
            signing_key=authority.private_key,
        )
        change(parts)
        return parts.sign(good.issuer)

    return sign_leaf


@pytest.mark.parametrize("scenario", [Scenario, serving])
def test_the_good_case_passes(
    monkeypatch: pytest.MonkeyPatch, scenario: Callable[[], Scenario]
) -> None:
    assert_issued(scenario)
    monkeypatch.setattr("signer.issue.certificate.sign_leaf", wrong_builder(lambda _: None))
    assert_issued(scenario)


@pytest.mark.parametrize(
    ("make", "rule", "change"),
    [(make, rule, change) for make, rule, _, change in CASES],
    ids=[f"{make.__name__}: {what}" for make, _, what, _ in CASES],
)
def test_certificate_that_says_something_else_does_not_leave(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], Scenario], rule: str, change: Change
) -> None:
    monkeypatch.setattr("signer.issue.certificate.sign_leaf", wrong_builder(change))
    scenario = make()
    traces = reconcile_once(scenario, scenario.answer_csr())
    assert (traces.outcome, traces.reason) == ("waiting", CertificateNotAsVerified.reason)
    assert f"'detail': '{rule}'" in traces.logged
    assert traces.csr.certificate is None
    assert traces.csr.conditions == {}
    assert not scenario.store.keys
    assert not scenario.store.nodes


def test_nothing_stands_beside_the_certificate() -> None:
    """The API server and the kubelet could read different ones."""
    scenario = Scenario()
    pem = reconcile_once(scenario, scenario.answer_csr()).csr.certificate
    assert pem is not None
    key = x509.load_pem_x509_certificate(pem).public_key()
    expected = ExpectedCertificate(
        node_name=NODE,
        organizations=["system:nodes", GROUP[1]],
        public_key=key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        serving_names=None,
        authority=authority().certificate,
        latest_end=NOW + WEEK,
    )
    lint_certificate(pem, expected, NOW)
    for text in (pem + pem, b"\n" + pem, pem[:-1], pem.replace(b" CERT", b" X509 CERT"), b""):
        with pytest.raises(CertificateNotAsVerified):
            lint_certificate(text, expected, NOW)
