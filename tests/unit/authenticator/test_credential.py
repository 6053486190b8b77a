"""The credential file: what is written is read again, and damage is found."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authenticator.credential import (
    SERVED_AGAIN_SECONDS,
    Credential,
    decode,
    encode,
    exec_credential,
    expiration,
)
from common.errors import StateDamaged
from tests.unit.authenticator import credentials

NOW = 1_800_000_000


def test_what_is_written_is_read_again() -> None:
    credential = credentials.make(NOW, arguments=("--node-name", "näme", "\udcff", ""))
    assert decode(encode(credential)) == credential


def test_text_before_the_first_block_is_no_pem() -> None:
    head, _, _ = encode(credentials.make(NOW)).partition(b"-----BEGIN CERTIFICATE-----")
    assert b"-----" not in head


@given(st.data())
def test_damage_is_found(data: st.DataObject) -> None:
    content = bytearray(encode(credentials.make(NOW)))
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(StateDamaged):
        decode(bytes(content))


@given(st.integers(0, len(encode(credentials.make(NOW))) - 1))
def test_truncation_is_found(length: int) -> None:
    with pytest.raises(StateDamaged):
        decode(encode(credentials.make(NOW))[:length])


def test_exec_credential_is_one_line_with_certificate_and_key() -> None:
    credential = credentials.make(NOW)
    printed = exec_credential(credential, "client.authentication.k8s.io/v1beta1", NOW + 5)
    assert printed.count(b"\n") == 1
    assert json.loads(printed) == {
        "kind": "ExecCredential",
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "status": {
            "expirationTimestamp": "2027-01-15T08:00:05Z",
            "clientCertificateData": credential.pair.certificate.decode(),
            "clientKeyData": credential.pair.key.decode(),
        },
    }


def test_expiration_is_the_renewal_point() -> None:
    credential = credentials.make(NOW)
    assert expiration(credential, NOW + 1) == credential.renew_at


@pytest.mark.parametrize("jump", [-(10**6), 6 * credentials.DAY, 10**8])
def test_expiration_is_soon_and_never_past_when_renewal_is_due(jump: int) -> None:
    assert expiration(credentials.make(NOW), NOW + jump) == NOW + jump + SERVED_AGAIN_SECONDS


def test_expiration_is_not_after_the_end_while_that_lies_ahead() -> None:
    """client-go would go on with the certificate until it meets a 401."""
    credential = credentials.make(NOW)
    assert expiration(credential, credential.not_after - 30) == credential.not_after


def test_fleet_is_spread_over_ten_points() -> None:
    def share(name: str) -> float:
        made = credentials.make(NOW)
        credential = Credential(
            node_name=name,
            pair=made.pair,
            not_before=made.not_before,
            not_after=made.not_after,
            received=made.received,
            exec_info=made.exec_info,
            arguments=made.arguments,
            api_version=made.api_version,
        )
        return (credential.renew_at - NOW) / credential.lifetime

    shares = sorted(share(f"worker-{n}") for n in range(200))
    assert 0.7 <= shares[0] < 0.705
    assert 0.795 < shares[-1] <= 0.8
