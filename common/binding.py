"""The keyed digests that tie an answer to its challenge, its requester and its own object.

`fields` gives every list of byte strings one encoding of its own, so that no two lists collide;
the HMACs over it are the only secrets of the exchange. Source: docs/protocol.md section 3.
"""

import hashlib
import hmac
from collections.abc import Iterable
from typing import NamedTuple

SECRET_SIZE = 32
"""Bytes of the master, the secret and `extraData`: one SHA-256 digest each."""


def encode_fields(*values: bytes | str) -> bytes:
    """Write each value as a 4-byte big-endian length and its bytes; strings in UTF-8."""
    encoded = [v.encode() if isinstance(v, str) else v for v in values]
    return b"".join([len(v).to_bytes(4, "big") + v for v in encoded])


def sha256(data: bytes) -> bytes:
    """Return the SHA-256 digest of `data`, 32 bytes."""
    return hashlib.sha256(data).digest()


def hmac_sha256(key: bytes, data: bytes) -> bytes:
    """Return HMAC-SHA256 of `data` under `key`, 32 bytes."""
    return hmac.digest(key, data, "sha256")


def challenge_key_id(master: bytes) -> str:
    """Name a master key without telling it: 8 bytes of an HMAC, in hex."""
    return hmac_sha256(master, b"key id")[:8].hex()


class ChallengeInputs(NamedTuple):
    """Everything that one challenge was made for; a false value in any field changes the secret.

    The fields are in the order in which the secret is derived from them.
    `pkcs10_sha256` and `ek_spki_sha256` are raw 32-byte digests, `ak_name` a TPM Name
    (2-byte algorithm and digest), `issued_at` exactly `YYYY-MM-DDTHH:MM:SSZ`.
    """

    cluster_uid: str
    signer_name: str
    username: str
    offer_uid: str
    issued_at: str
    pkcs10_sha256: bytes
    ek_spki_sha256: bytes
    ak_name: bytes


def challenge_secret(master: bytes, inputs: ChallengeInputs) -> bytes:
    """Derive the secret that MakeCredential wraps for the endorsement key, 32 bytes."""
    return hmac_sha256(
        master,
        encode_fields("challenge/v1", *inputs),
    )


def answer_extra_data(
    secret: bytes, *, name: str, expiration_seconds: int | None, usages: Iterable[str]
) -> bytes:
    """Derive the `extraData` of the quote in the CSR called `name`, 32 bytes."""
    expiration = "" if expiration_seconds is None else str(expiration_seconds)
    return hmac_sha256(
        secret, encode_fields("answer/v1", name, expiration, ",".join(sorted(usages)))
    )
