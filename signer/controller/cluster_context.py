"""One workload cluster, as a reconciliation uses it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from signer.controller.requester_share import RequesterShares
from signer.model import ClusterKey, Csr, Inventory


class CsrWriter(Protocol):
    """Writes to the CSRs of one cluster. Each raises `CsrChanged` if the CSR has changed since."""

    def read(self, name: str) -> Csr | None:
        """Return the CSR as it is now."""

    def may_create(self, csr: Csr, subresource: str) -> bool:
        """Return whether RBAC allows the requester a subresource of CSRs, for the CSR's signer.

        Raises `AccessReviewUnavailable` if the API server does not decide.
        """

    def annotate(self, csr: Csr, values: Mapping[str, str | None]) -> Csr:
        """Write annotations, and remove those whose value is `None`.

        Raises `AnnotationsFull` if the API server refuses their size.
        """

    def approve(self, csr: Csr, reason: str, message: str) -> Csr:
        """Add the condition Approved."""

    def deny(self, csr: Csr, reason: str, message: str) -> Csr:
        """Add the condition Denied."""

    def fail(self, csr: Csr, reason: str, message: str) -> Csr:
        """Add the condition Failed."""

    def set_certificate(self, csr: Csr, certificate: bytes) -> Csr:
        """Write the certificate."""

    def record_event(self, csr: Csr, reason: str, message: str, now: datetime) -> None:
        """Create an Event, unless one with this reason exists for this CSR."""


class CredentialPublisher(Protocol):
    """Writes the list of the certificates that the nodes of one cluster may write with."""

    def publish(self, entries: Mapping[str, str | None]) -> None:
        """Write the entries of nodes; `None` removes one. Raises `ApiServerUnavailable`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterContext:
    """One workload cluster: its inventory, its CSRs and the shares of its requesters."""

    key: ClusterKey
    inventory: Inventory
    csrs: CsrWriter
    credentials: CredentialPublisher
    shares: RequesterShares
