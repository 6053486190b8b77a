"""The credential file: a written credential can be read, and damage is found."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authenticator.errors import StateCorrupted
from authenticator.model import KeyPair
from authenticator.state.credential import (
    CHECK_MODULUS,
    STALE_EXPIRATION_SECONDS,
    Credential,
    decode,
    encode,
    encode_exec_credential,
    expiration_timestamp,
)
from tests.builders import credentials

NOW = 1_800_000_000


def test_written_credential_can_be_read() -> None:
    credential = credentials.make(NOW, arguments=("--node-name", "näme", "\udcff", ""))
    assert decode(encode(credential)) == credential


def test_text_before_the_first_block_is_refused() -> None:
    head, _, _ = encode(credentials.make(NOW)).partition(b"-----BEGIN CERTIFICATE-----")
    assert b"-----" not in head


@given(st.data())
def test_damage_is_found(data: st.DataObject) -> None:
    content = bytearray(encode(credentials.make(NOW)))
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(StateCorrupted):
        decode(bytes(content))


def with_details(details: bytes) -> bytes:
    """Return a file with these details and a correct checksum."""
    magic, _, signed = encode(credentials.make(NOW)).split(b"\n", 2)
    lines = signed.split(b"\n", 7)
    lines[6] = details
    signed = b"\n".join(lines)
    check = int.from_bytes(signed, "big") % CHECK_MODULUS
    return b"%s\n%d\n%s" % (magic, check, signed)


@pytest.mark.parametrize(
    "details",
    [
        b"null",
        b"{}",
        b'{"nodeName": "n", "notBefore": null, "notAfter": 2, "received": 1}',
        b'{"nodeName":"n","notBefore":Infinity,"notAfter":2,"received":1,"providerID":"p"}',
        b'{"nodeName": "n", "notBefore": 0, "notAfter": 2, "received": 1}',
    ],
)
def test_file_with_other_details_and_a_correct_checksum_is_damaged(details: bytes) -> None:
    good = b'{"nodeName": "n", "notBefore": 0, "notAfter": 2, "received": 1, "providerID": "p"}'
    assert decode(with_details(good)).node_name == "n"
    with pytest.raises(StateCorrupted):
        decode(with_details(details))


@pytest.mark.parametrize(
    ("before", "after"), [(b"text\n", b""), (b"", b"text\n")], ids=["before", "after"]
)
def test_file_with_text_around_its_pem_is_damaged(before: bytes, after: bytes) -> None:
    good = credentials.make(NOW).key_pair
    pair = KeyPair(certificate=before + good.certificate, key=good.key + after)
    with pytest.raises(StateCorrupted):
        decode(encode(credentials.make(NOW, pair=pair)))


def test_exec_credential_is_one_line_with_certificate_and_key() -> None:
    credential = credentials.make(NOW)
    printed = encode_exec_credential(credential, "client.authentication.k8s.io/v1beta1", NOW + 5)
    assert printed.count(b"\n") == 1
    assert json.loads(printed) == {
        "kind": "ExecCredential",
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "status": {
            "expirationTimestamp": "2027-01-15T08:00:05Z",
            "clientCertificateData": credential.key_pair.certificate.decode(),
            "clientKeyData": credential.key_pair.key.decode(),
        },
    }


def test_expiration_is_the_renewal_point() -> None:
    credential = credentials.make(NOW)
    assert expiration_timestamp(credential, NOW + 1) == credential.renew_at


@pytest.mark.parametrize("jump", [-(10**6), 6 * credentials.DAY, 10**8])
def test_expiration_is_soon_and_never_past_when_renewal_is_due(jump: int) -> None:
    assert (
        expiration_timestamp(credentials.make(NOW), NOW + jump)
        == NOW + jump + STALE_EXPIRATION_SECONDS
    )


def test_expiration_is_not_after_the_end_of_a_valid_certificate() -> None:
    """client-go would use the certificate until it gets a 401."""
    credential = credentials.make(NOW)
    assert expiration_timestamp(credential, credential.not_after - 30) == credential.not_after


@pytest.mark.parametrize(("left", "served"), [(2, 2), (1, STALE_EXPIRATION_SECONDS)])
def test_expiration_is_never_now(left: int, served: int) -> None:
    credential = credentials.make(NOW)
    now = credential.not_after - left
    assert expiration_timestamp(credential, now) == now + served


def test_lifetime_is_that_of_the_certificate_if_received_outside_of_it() -> None:
    template = credentials.make(NOW)
    whole = template.not_after - template.not_before
    for received, lifetime in (
        (template.not_before - 1, whole),
        (template.not_before, whole),
        (template.not_after - 1, 1),
        (template.not_after, whole),
    ):
        assert replace(template, received_at=received).lifetime == lifetime


def test_fleet_is_spread_over_ten_points() -> None:
    def share(name: str) -> float:
        template = credentials.make(NOW)
        credential = Credential(
            node_name=name,
            key_pair=template.key_pair,
            not_before=template.not_before,
            not_after=template.not_after,
            received_at=template.received_at,
            exec_info=template.exec_info,
            arguments=template.arguments,
            api_version=template.api_version,
            provider_id=template.provider_id,
        )
        return (credential.renew_at - NOW) / credential.lifetime

    shares = sorted(share(f"worker-{n}") for n in range(200))
    assert 0.7 <= shares[0] < 0.705
    assert 0.795 < shares[-1] <= 0.8
