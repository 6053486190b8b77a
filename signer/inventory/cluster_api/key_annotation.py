"""Reads the annotation that registers endorsement keys of a Machine.

Its entries are PEM public keys, PEM certificates, or `sha256:` and the digest of the
SubjectPublicKeyInfo in hex. Spaces, line ends and commas separate them. One entry that cannot be
read makes the whole annotation an error: half of it would register other keys than the operator
wrote. Source: docs/protocol.md section 2.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from common.public_keys import InvalidKey, spki_sha256
from signer.kinds.machine import RegisteredKey

_MAX_KEYS: Final = 8
"""A TPM has up to four keys of the templates, and an annotation may name each with its certificate.
To load a compressed point of P-384 takes 0.1 ms."""
_MAX_CHARACTERS: Final = 16 << 10
_CACHED: Final = 512
"""Values whose digests are kept: an object is read at each of its changes."""
_ENTRY: Final = re.compile(
    r"[\s,]*(?:sha256:(?P<digest>[0-9A-Fa-f]{64})(?![^\s,])"
    r"|(?P<pem>-----BEGIN (?P<label>PUBLIC KEY|CERTIFICATE)-----"
    r"[A-Za-z0-9+/=\s]+-----END (?P=label)-----))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyAnnotation:
    """The keys of one object's annotation, or why it cannot be read."""

    keys: tuple[RegisteredKey, ...] = ()
    error: str | None = None


NO_ANNOTATION: Final = KeyAnnotation()


def read_key_annotation(value: str | None, source: str) -> KeyAnnotation:
    """Read an annotation's value, `None` for none; `source` names its object in messages."""
    if value is None:
        return NO_ANNOTATION
    if len(value) > _MAX_CHARACTERS:
        message = f"{source}: the annotation must not exceed {_MAX_CHARACTERS} characters"
        return KeyAnnotation(error=message)
    try:
        digests = _digests(value)
    except ValueError as error:
        return KeyAnnotation(error=f"{source}: {error}")
    return KeyAnnotation(keys=tuple(RegisteredKey(source=source, spki_sha256=d) for d in digests))


@lru_cache(maxsize=_CACHED)
def _digests(value: str) -> tuple[bytes, ...]:
    entries, end = [], 0
    while entry := _ENTRY.match(value, end):
        entries.append(entry)
        end = entry.end()
    if value[end:].strip(" \t\r\n,") or not entries:
        raise ValueError("every entry must be a PEM public key, a PEM certificate or sha256:<hex>")
    if len(entries) > _MAX_KEYS:
        raise ValueError(f"there must be at most {_MAX_KEYS} keys: register others with `register`")
    return tuple(dict.fromkeys(map(_digest, entries)))


def _digest(entry: re.Match[str]) -> bytes:
    if entry["digest"] is not None:
        return bytes.fromhex(entry["digest"])
    pem = entry["pem"].encode()
    try:
        return spki_sha256(_public_key(entry["label"], pem))
    except (InvalidKey, UnsupportedAlgorithm, x509.InvalidVersion, ValueError, TypeError) as error:
        # OpenSSL's words help no operator; a digest can be read for every key.
        message = f"a {entry['label']} cannot be read: give its key's digest as sha256:<hex>"
        raise ValueError(message) from error


def _public_key(label: str, pem: bytes) -> PublicKeyTypes:
    if label == "PUBLIC KEY":
        return load_pem_public_key(pem)
    return x509.load_pem_x509_certificate(pem).public_key()
