"""The HMACs that bind an answer to its challenge, its requester and its own CSR object.

Their inputs are lists of byte strings. `encode_fields` gives each list a different encoding, so no
two lists have the same HMAC. Source: docs/protocol.md section 3.
"""

import hashlib
import hmac
from collections.abc import Iterable
from typing import NamedTuple

SECRET_SIZE = 32
"""Bytes of a challenge key, of the secret and of `extraData`: a SHA-256 digest each."""


def encode_fields(*values: bytes | str) -> bytes:
    """Concatenate the values, each with a 4-byte big-endian length before it; strings in UTF-8."""
    encoded = [v.encode() if isinstance(v, str) else v for v in values]
    return b"".join([len(v).to_bytes(4, "big") + v for v in encoded])


def sha256(data: bytes) -> bytes:
    """Return the SHA-256 digest of `data`, 32 bytes."""
    return hashlib.sha256(data).digest()


def hmac_sha256(key: bytes, data: bytes) -> bytes:
    """Return HMAC-SHA256 of `data` under `key`, 32 bytes."""
    return hmac.digest(key, data, "sha256")


def challenge_key_id(challenge_key: bytes) -> str:
    """Return the public ID of a challenge key: the first 8 bytes of an HMAC, in hex."""
    return hmac_sha256(challenge_key, b"key id")[:8].hex()


class ChallengeInputs(NamedTuple):
    """The inputs of one challenge, in the order of derivation; each one changes the secret.

    `pkcs10_sha256` and `ek_spki_sha256` are raw 32-byte digests. `ak_name` is a TPM Name: a 2-byte
    algorithm and a digest. `issued_at` is exactly `YYYY-MM-DDTHH:MM:SSZ`.
    """

    cluster_uid: str
    signer_name: str
    username: str
    offer_uid: str
    issued_at: str
    pkcs10_sha256: bytes
    ek_spki_sha256: bytes
    ak_name: bytes


def challenge_secret(challenge_key: bytes, inputs: ChallengeInputs) -> bytes:
    """Return the 32-byte secret that MakeCredential wraps for the endorsement key."""
    return hmac_sha256(challenge_key, encode_fields("challenge/v1", *inputs))


def answer_extra_data(  # noqa: PLR0913 - each by name
    secret: bytes,
    *,
    name: str,
    pkcs10_sha256: bytes,
    expiration_seconds: int | None,
    usages: Iterable[str],
    members: Iterable[str],
) -> bytes:
    """Return the 32-byte `extraData` of the quote in the CSR object `name`.

    `pkcs10_sha256` is the raw digest of the request in that object. The secret contains it too, but
    the node cannot see for which request a secret was made. `members` are the names in the
    challenge that the node acted on.
    """
    expiration = "" if expiration_seconds is None else str(expiration_seconds)
    return hmac_sha256(
        secret,
        encode_fields(
            "answer/v1",
            name,
            pkcs10_sha256,
            expiration,
            ",".join(sorted(usages)),
            ",".join(sorted(members)),
        ),
    )
