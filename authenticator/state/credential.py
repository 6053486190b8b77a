"""The kubelet's credential: its file, how long it is served, and its output.

The file is text: a header, then certificate and key as PEM, so that OpenSSL and the kubelet read it
too. The launcher parses the first eight lines only (see `launcher`):

    kubelet-authenticator-tpm credential 1
    <checksum of all that follows, decimal>
    <arguments of the call, joined by NUL, hex>
    <bytes of KUBERNETES_EXEC_INFO, hex>
    <unix time of receipt, less CLOCK_SKEW_SECONDS>
    <unix time of the renewal point>
    <the renewal point as RFC 3339>
    <apiVersion of the exec info>
    <JSON: what only the full program needs>

The checksum detects damage, not attacks: a process that can write this file can act as the node.
The checksum is needed although a rename replaces the file: see docs/decisions/0003.
"""

import json
import math
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from hashlib import sha256
from typing import Final

from authenticator.errors import StateCorrupted
from authenticator.model import KeyPair

MAGIC: Final = b"kubelet-authenticator-tpm credential 1"
CHECK_MODULUS: Final = 2**61 - 1
STALE_EXPIRATION_SECONDS: Final = 120
"""`expirationTimestamp` of a certificate that is served although its renewal is due."""

OVERDUE_SECONDS: Final = 300
"""A renewal that is due for longer is a problem."""

CLOCK_SKEW_SECONDS: Final = 300
"""A clock that is set back by less does not send the call to the full program."""

RENEWAL_FRACTION: Final = 0.8
RENEWAL_SPREAD: Final = 0.1
CERTIFICATE_BEGIN: Final = b"-----BEGIN CERTIFICATE-----"
KEY_BEGIN: Final = b"-----BEGIN PRIVATE KEY-----"
KEY_END: Final = b"-----END PRIVATE KEY-----\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A certificate that the API server has accepted, its key, and the call that obtained it."""

    node_name: str
    key_pair: KeyPair
    not_before: int
    not_after: int
    received_at: int
    """Wall time of receipt: the lifetime counts from it, so that a wrong clock changes little."""
    exec_info: bytes
    arguments: tuple[str, ...]
    api_version: str
    provider_id: str
    """Of the machine that obtained it."""
    known_calls: tuple[str, ...] = ()
    """Digests of the exec infos that this certificate or an earlier one was obtained for."""

    def is_of(self, node_name: str, provider_id: str) -> bool:
        """Return whether the machine with this identity obtained the certificate."""
        return self.node_name == node_name and self.provider_id == provider_id

    @property
    def lifetime(self) -> int:
        """Return the seconds that were left on receipt.

        The certificate's own lifetime when the node's clock was outside of its dates.
        """
        if self.not_before <= self.received_at < self.not_after:
            return self.not_after - self.received_at
        return self.not_after - self.not_before

    @property
    def renew_at(self) -> int:
        """Return when less than 20 % is left, or up to ten points earlier, by node name."""
        share = int.from_bytes(sha256(self.node_name.encode()).digest()[:4], "big") / 2**32
        return self.received_at + math.floor(
            self.lifetime * (RENEWAL_FRACTION - RENEWAL_SPREAD * share)
        )


class Freshness(Enum):
    """What a call may do with the credential in the cache."""

    FRESH = "fresh"
    RENEWAL_DUE = "due"
    EXPIRED = "expired"


def freshness(credential: Credential, now: float) -> Freshness:
    """Return what the node's clock says of a credential; the clock may be wrong or have jumped.

    A credential is EXPIRED only when neither its dates nor its lifetime since receipt cover `now`.
    Serving an invalid certificate costs one 401, after which it is replaced. Not serving a valid
    one costs the node.
    """
    if credential.received_at - CLOCK_SKEW_SECONDS <= now < credential.renew_at:
        return Freshness.FRESH
    by_its_dates = now < credential.not_after
    since_receipt = now < credential.received_at + credential.lifetime
    return Freshness.RENEWAL_DUE if by_its_dates or since_receipt else Freshness.EXPIRED


def overdue_seconds(credential: Credential, now: float) -> float:
    """Return for how long the renewal has been due; 0 while that is no problem.

    The certificate shows it, also when a run ended without a record, or never started.
    """
    late = now - credential.renew_at
    return late if late > OVERDUE_SECONDS else 0.0


def expiration_timestamp(credential: Credential, now: float) -> int:
    """Return the `expirationTimestamp` to print: the renewal point while FRESH, else soon.

    It is never in the past. It is not after the certificate's end while that is in the future:
    client-go would use the certificate until it gets a 401.
    """
    if freshness(credential, now) is Freshness.FRESH:
        return credential.renew_at
    soon = math.ceil(now) + STALE_EXPIRATION_SECONDS
    return min(soon, credential.not_after) if credential.not_after > now + 1 else soon


def rfc3339(seconds: float) -> str:
    """Return unix seconds in the format of Kubernetes."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def encode_exec_credential(credential: Credential, api_version: str, expires: int) -> bytes:
    """Return the ExecCredential for client-go: one line of JSON."""
    document = {
        "kind": "ExecCredential",
        "apiVersion": api_version,
        "status": {
            "expirationTimestamp": rfc3339(expires),
            "clientCertificateData": credential.key_pair.certificate.decode(),
            "clientKeyData": credential.key_pair.key.decode(),
        },
    }
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def encode(credential: Credential) -> bytes:
    """Return the content of the credential file."""
    details = {
        "nodeName": credential.node_name,
        "notBefore": credential.not_before,
        "notAfter": credential.not_after,
        "received": credential.received_at,
        "providerID": credential.provider_id,
        "calls": credential.known_calls,
    }
    joined = "\0".join(credential.arguments).encode("utf-8", "surrogateescape")
    lines = (
        joined.hex().encode(),
        credential.exec_info.hex().encode(),
        b"%d" % (credential.received_at - CLOCK_SKEW_SECONDS),
        b"%d" % credential.renew_at,
        rfc3339(credential.renew_at).encode(),
        credential.api_version.encode(),
        json.dumps(details).encode(),
        credential.key_pair.certificate + credential.key_pair.key,
    )
    return b"%s\n%d\n%s" % (MAGIC, _check(b"\n".join(lines)), b"\n".join(lines))


def decode(content: bytes) -> Credential:
    """Parse a credential file. Raises `StateCorrupted` when it is incomplete or damaged."""
    try:
        return _parse(content)
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise StateCorrupted("the credential file is damaged") from error


def _parse(content: bytes) -> Credential:
    magic, check, signed = content.split(b"\n", 2)
    if magic != MAGIC or int(check) != _check(signed):
        raise ValueError("checksum")
    joined, exec_info, _, _, _, api_version, details_line, pem = signed.split(b"\n", 7)
    details = json.loads(details_line)
    key = pem.index(KEY_BEGIN)
    if not pem.startswith(CERTIFICATE_BEGIN) or not pem.endswith(KEY_END):
        raise ValueError("PEM")
    arguments = bytes.fromhex(joined.decode()).decode("utf-8", "surrogateescape")
    return Credential(
        node_name=str(details["nodeName"]),
        key_pair=KeyPair(certificate=pem[:key], key=pem[key:]),
        not_before=int(details["notBefore"]),
        not_after=int(details["notAfter"]),
        received_at=int(details["received"]),
        exec_info=bytes.fromhex(exec_info.decode()),
        arguments=tuple(arguments.split("\0")) if arguments else (),
        api_version=api_version.decode(),
        provider_id=str(details["providerID"]),
        known_calls=tuple(map(str, details.get("calls", ()))),
    )


def _check(content: bytes) -> int:
    return int.from_bytes(content, "big") % CHECK_MODULUS
