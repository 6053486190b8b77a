"""Values and interfaces that the packages of the node's program share.

Values are immutable. The interfaces (`CsrApi`, `Clock`) are owned by `enroll`, which calls them.
Each has one fake in tests/fakes, and one contract test that runs over the fake and the real
implementation.

Two clocks: *wall* times are unix seconds by the node's clock and are only compared with dates in
certificates. *Boot* times are seconds since boot (CLOCK_BOOTTIME: it cannot be set and includes
sleep). Boot times mean nothing after a reboot, so the boot's ID is stored with them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from typing import Final, Protocol

from authenticator.errors import DeadlinePassed

EXCHANGE_TTL_SECONDS: Final = 15 * 60
"""The keys of an exchange are discarded after this time (docs/protocol.md section 3)."""


PEM_CERTIFICATE: Final = re.compile(
    r"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A bearer token."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A client certificate (with its chain, if any) and its private key, both PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


Address = str | IPv4Address | IPv6Address
"""A DNS name in lower case, or an IP address."""

ApiCredential = Token | KeyPair
"""What authenticates a request to the API server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The API server, as the exec info describes it."""

    url: str
    ca: str
    """PEM certificates, the only trusted authorities. Some of them may be unreadable."""
    tls_server_name: str | None
    proxy: str | None

    def authorities(self) -> list[str]:
        """Return the certificates of `ca`, one each.

        client-go reads them one by one, and ignores those that it cannot read.
        """
        return PEM_CERTIFICATE.findall(self.ca)


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateSpec:
    """The certificate that an exchange asks for."""

    node_name: str
    provider_id: str
    signer_name: str
    usages: frozenset[str]
    names: tuple[Address, ...]
    """Subject alternative names of a serving certificate; empty for a client certificate."""
    expiration_seconds: int | None
    fingerprint: str
    """Digest of server, requester and the other fields: an exchange is resumed only under it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CsrRequest:
    """What is sent to create a CertificateSigningRequest."""

    name: str
    signer_name: str
    usages: tuple[str, ...]
    expiration_seconds: int | None
    request: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Csr:
    """A CertificateSigningRequest as the API server returns it. Others may write all but `uid`."""

    uid: str
    resource_version: str
    """A watch from this version sees every later change."""
    spec: CsrRequest
    annotations: Mapping[str, str]
    conditions: Mapping[str, tuple[str, str]]
    """Type (Approved, Denied, Failed) to reason and message."""
    certificate: bytes | None


class CsrApi(Protocol):
    """The calls of one requester to the API server.

    Every method may raise `ApiServerUnavailable`, `ApiServerUntrusted`, `ApiResponseMalformed`,
    `Unauthorized`, `Forbidden`, `Invalid`, and `DeadlinePassed`.
    """

    def create(self, request: CsrRequest) -> Csr:
        """Create the CSR, or return the existing one of this name, with any content."""
        ...

    def get(self, name: str) -> Csr | None:
        """Return the CSR of that name, None if it does not exist."""
        ...

    def wait_for_change(self, csr: Csr, seconds: float) -> Csr | None:
        """Wait at most `seconds` for a change of this CSR, and return its present state.

        None when it was deleted.
        """
        ...

    def self_subject_review(self) -> str | None:
        """Return the requester's user name (SelfSubjectReview); None before Kubernetes 1.28."""
        ...

    def server_time(self) -> float | None:
        """Return the time of day by the API server's clock; None if it does not say.

        Any response has it, also one that refuses the requester.
        """
        ...

    def can_create_csrs(self) -> bool:
        """Return whether the requester may create CSRs (SelfSubjectAccessReview)."""
        ...


class Clock(Protocol):
    """The node's clocks."""

    def now(self) -> float:
        """Return the time of day, in unix seconds."""
        ...

    def boottime(self) -> float:
        """Return the seconds since boot, sleep included."""
        ...

    def boot_id(self) -> str:
        """Return the ID of this boot."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class Deadline:
    """The end of one call, in boot time. It also limits the timeout of every step."""

    __slots__ = ("_clock", "_end")

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._end = clock.boottime() + seconds

    def remaining(self) -> float:
        """Return the remaining seconds; zero or less when the deadline has passed."""
        return self._end - self._clock.boottime()

    def clamp(self, seconds: float) -> float:
        """Return the smaller of `seconds` and the remaining time. Raises `DeadlinePassed`."""
        left = self.remaining()
        if left <= 0:
            raise DeadlinePassed("the time for this call is used up")
        return min(seconds, left)


def backoff(failures: int, initial: float, maximum: float) -> float:
    """Return the pause after so many earlier failures: `initial`, doubled each time, capped."""
    return min(maximum, initial * 2.0 ** min(failures, 32))


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingExchange:
    """An exchange in progress, as it is stored on disk before anything of it is sent."""

    fingerprint: str
    """`CertificateSpec.fingerprint`."""
    boot_id: str
    started_at: float
    """Boot time."""
    offer_name: str
    answer_name: str
    key: bytes = field(repr=False)
    """The kubelet's private key, PEM. A secret."""
    offer: bytes
    """`spec.request` of the offer (A)."""
    offer_uid: str | None
    """UID of A, stored with its challenge."""
    challenge: str | None
    """The first challenge annotation that could be read."""
    challenge_seen: float | None
    """Boot time."""
    answer: bytes | None
    """`spec.request` of the answer (B)."""

    def is_live(self, clock: Clock) -> bool:
        """Return whether the exchange is of this boot and its key may still be used."""
        age = clock.boottime() - self.started_at
        return self.boot_id == clock.boot_id() and 0 <= age <= EXCHANGE_TTL_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooldown:
    """No exchange begins before `until` (boot time of the boot `boot_id`)."""

    boot_id: str
    until: float
    failures: int
    reason: str
    message: str
    fingerprint: str
    """Digest of settings, server and requester: the cooldown holds for the same ones only."""
    clock_offset: float
    """Wall time minus boot time when the cooldown started: differs after the clock is set."""
