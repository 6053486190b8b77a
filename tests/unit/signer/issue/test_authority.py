"""The authority of a cluster: both halves, of one pair, read when they are needed (I1)."""

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from signer.errors import AuthorityUnavailable
from signer.issue.authority import ClusterAuthorities, parse_authority
from signer.model import ClusterKey
from tests.fakes.secrets import FakeSecrets
from tests.harness import pki

HOME = ClusterKey(namespace="team-a", name="blue")


def pair(key: pki.PrivateKey | None = None) -> dict[str, bytes]:
    made = pki.Authority.make("workload", key or pki.ec_key()).pair
    return {"tls.crt": made.certificate, "tls.key": made.key}


@pytest.mark.parametrize("key", [pki.ec_key(), pki.rsa_key()])
def test_kubeadms_authorities_are_read(key: pki.PrivateKey) -> None:
    authority = parse_authority(pair(key))
    assert authority.certificate.public_key() == key.public_key()
    assert "PrivateKey" not in repr(authority)


def test_the_first_certificate_is_the_authoritys_own() -> None:
    data = pair()
    older = pair()["tls.crt"]
    authority = parse_authority({**data, "tls.crt": data["tls.crt"] + older})
    assert authority.certificate.public_key() == authority.private_key.public_key()


@pytest.mark.parametrize("missing", ["tls.crt", "tls.key"])
def test_half_an_authority_signs_nothing(missing: str) -> None:
    """An authority that is kept elsewhere has no key in its Secret."""
    for data in ({**pair(), missing: b""}, {k: v for k, v in pair().items() if k != missing}):
        with pytest.raises(AuthorityUnavailable, match="lacks"):
            parse_authority(data)


def test_halves_of_two_pairs_sign_nothing() -> None:
    """While an authority is replaced, the Secret may be between two."""
    with pytest.raises(AuthorityUnavailable, match="not that of its certificate"):
        parse_authority({**pair(), "tls.key": pair()["tls.key"]})


@pytest.mark.parametrize("broken", ["tls.crt", "tls.key"])
def test_what_cannot_be_read_signs_nothing(broken: str) -> None:
    with pytest.raises(AuthorityUnavailable, match="cannot be read"):
        parse_authority({**pair(), broken: b"-----BEGIN NOTHING-----"})


def test_an_encrypted_key_signs_nothing() -> None:
    key = pki.ec_key()
    encrypted = key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"password")
    )
    with pytest.raises(AuthorityUnavailable, match="cannot be read"):
        parse_authority({**pair(key), "tls.key": encrypted})


def test_a_key_of_another_kind_signs_nothing() -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with pytest.raises(AuthorityUnavailable, match="neither RSA nor ECDSA"):
        parse_authority({**pair(), "tls.key": text})


def test_each_clusters_authority_is_its_own() -> None:
    secrets = FakeSecrets()
    secrets.put("team-a", "blue-ca", pair())
    secrets.put("team-b", "blue-ca", pair())
    authorities = ClusterAuthorities(secrets)
    other = ClusterKey(namespace="team-b", name="blue")
    assert authorities.authority(HOME).certificate != authorities.authority(other).certificate
    with pytest.raises(AuthorityUnavailable, match="missing"):
        authorities.authority(ClusterKey(namespace="team-c", name="blue"))


def test_a_new_authority_counts_at_once() -> None:
    secrets = FakeSecrets()
    secrets.put("team-a", "blue-ca", pair())
    authorities = ClusterAuthorities(secrets)
    old = authorities.authority(HOME)
    secrets.put("team-a", "blue-ca", pair())
    assert authorities.authority(HOME).certificate != old.certificate
