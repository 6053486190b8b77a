"""What the node's rooms hand each other, and the seams behind which its world lies.

Values are immutable. The seams are owned by `exchange` and `enrol`, which call them; each has one
fake in tests/fakes and one contract test that runs over the fake and the real thing.

Two clocks: *wall* times are unix seconds as the node believes them, and are only compared with what
certificates say. *Boot* times are seconds since boot (CLOCK_BOOTTIME, which nobody sets and which
runs on in sleep); they mean nothing after a reboot, so they go together with the boot's id.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from typing import Protocol

from authenticator.errors import DeadlinePassed


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
"""As whom the API server is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The API server, as the exec info names it."""

    url: str
    ca: str
    """PEM certificates: the only authorities that count."""
    tls_server_name: str | None
    proxy: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateSpec:
    """The certificate that an exchange is for."""

    node_name: str
    provider_id: str
    signer_name: str
    usages: frozenset[str]
    names: tuple[Address, ...]
    """Subject alternative names: those of a serving certificate, none for a client."""
    expiration_seconds: int | None
    fingerprint: str
    """Digest over call, settings and requester: an exchange goes on only for the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CsrRequest:
    """What is sent to make a CertificateSigningRequest."""

    name: str
    signer_name: str
    usages: tuple[str, ...]
    expiration_seconds: int | None
    request: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Csr:
    """A CertificateSigningRequest as the API server shows it. All but `uid` is somebody's claim."""

    uid: str
    resource_version: str
    """From where on changes of it are still to be seen."""
    spec: CsrRequest
    annotations: Mapping[str, str]
    conditions: Mapping[str, tuple[str, str]]
    """Type (Approved, Denied, Failed) to reason and message."""
    certificate: bytes | None


class CsrApi(Protocol):
    """The API server's CSRs, asked as one requester.

    Every method may raise `ApiServerUnavailable`, `ApiServerUntrusted`, `ApiResponseMalformed`,
    `Unauthorized`, `Forbidden`, `Invalid`, and `DeadlinePassed`.
    """

    def create(self, request: CsrRequest) -> Csr:
        """File the CSR, or return the one that has this name already, whatever is in it."""
        ...

    def get(self, name: str) -> Csr | None:
        """Return the CSR of that name, None when there is none."""
        ...

    def wait_for_change(self, csr: Csr, seconds: float) -> Csr | None:
        """Wait for a change of this CSR, for `seconds` at most, and return what it is then.

        None when it was deleted.
        """
        ...

    def self_subject_review(self) -> str:
        """Return the user name that the API server knows the requester by (SelfSubjectReview)."""
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
        """Name this boot."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class Deadline:
    """The end of one call, in boot time; every part of it gets the smaller of its own and this."""

    __slots__ = ("_clock", "_end")

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._end = clock.boottime() + seconds

    def remaining(self) -> float:
        """Return the seconds that are left; zero or less when it has passed."""
        return self._end - self._clock.boottime()

    def clamp(self, seconds: float) -> float:
        """Return the smaller of `seconds` and what is left. Raises DeadlinePassed at the end."""
        left = self.remaining()
        if left <= 0:
            raise DeadlinePassed("the time for this call is used up")
        return min(seconds, left)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingExchange:
    """An exchange that has begun, as it is kept on disk; it is written before anything is sent."""

    fingerprint: str
    """Digest of everything the exchange was begun with: call, settings and requester."""
    boot_id: str
    started_at: float
    """Boot time."""
    offer_name: str
    answer_name: str
    key: bytes = field(repr=False)
    """The kubelet's private key, PEM. A secret."""
    offer: bytes
    """`spec.request` of A."""
    offer_uid: str | None
    """UID of A, kept with its challenge."""
    challenge: str | None
    """The challenge annotation as it was first seen."""
    challenge_seen: float | None
    """Boot time."""
    answer: bytes | None
    """`spec.request` of B."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cooldown:
    """No exchange begins before `until` (boot time of the boot `boot_id`)."""

    boot_id: str
    until: float
    failures: int
    reason: str
    message: str
    fingerprint: str
    """The cooldown ends early when call, settings or requester have changed."""


class PhaseTimer(Protocol):
    """Where it is told what a run is doing."""

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Time what happens inside as one phase."""
        ...
