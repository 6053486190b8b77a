"""CSRs in memory: the writes that a signer may do, and a hook for concurrent writers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from common.errors import ApiServerUnavailable
from signer.errors import AccessReviewUnavailable, AnnotationsFull, CsrChanged
from signer.kinds.csr import Condition, Csr
from signer.kube.csrs import CsrClient

_ANNOTATIONS_SIZE = 256 * 1024
"""Bytes of all annotations of an object, by the API server's validation."""


@dataclass(slots=True)
class FakeCsrs(CsrClient):
    """`interrupt` runs once before the n-th write (from 1)."""

    stored: dict[str, Csr] = field(default_factory=dict)
    events: list[tuple[str, str]] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    interrupt: Callable[[], None] | None = None
    interrupt_before: int = 1
    version: int = 0
    annotations_size: int = _ANNOTATIONS_SIZE
    allowed: frozenset[str] | None = frozenset({"nodeclient", "selfnodeclient", "selfnodeserver"})
    """Subresources that RBAC allows every requester; `None`: no review is decided."""

    def put(self, csr: Csr) -> Csr:
        """Write a CSR unconditionally."""
        self.version += 1
        self.stored[csr.name] = replace(csr, resource_version=str(self.version))
        return self.stored[csr.name]

    def read(self, name: str) -> Csr | None:
        self.reads.append(name)
        return self.stored.get(name)

    def may_create(self, csr: Csr, subresource: str) -> bool:
        assert csr.name in self.stored
        self.reads.append(subresource)
        if self.allowed is None:
            raise AccessReviewUnavailable("away")
        return subresource in self.allowed

    def annotate(self, csr: Csr, values: Mapping[str, str | None]) -> Csr:
        """Write annotations, within the API server's limit."""
        current = self._begin(f"annotate {','.join(values)}", csr)
        merged = {**current.annotations, **values}
        wanted = {key: value for key, value in merged.items() if value is not None}
        if sum(len(key) + len(value) for key, value in wanted.items()) > self.annotations_size:
            raise AnnotationsFull("too long")
        return self.put(replace(current, annotations=wanted))

    def approve(self, csr: Csr, reason: str, message: str) -> Csr:
        return self._add_condition(csr, "Approved", reason, message)

    def deny(self, csr: Csr, reason: str, message: str) -> Csr:
        return self._add_condition(csr, "Denied", reason, message)

    def fail(self, csr: Csr, reason: str, message: str) -> Csr:
        return self._add_condition(csr, "Failed", reason, message)

    def set_certificate(self, csr: Csr, certificate: bytes) -> Csr:
        """Write the certificate, once."""
        current = self._begin("certify", csr)
        if current.certificate is not None:
            raise CsrChanged("has one")
        return self.put(replace(current, certificate=certificate))

    def delete(self, csr: Csr) -> None:
        self._begin("delete", csr)
        del self.stored[csr.name]

    def record_event(self, csr: Csr, reason: str, message: str, now: datetime) -> None:
        """Write an Event, once for each reason."""
        assert message
        assert now.tzinfo is not None
        if (csr.name, reason) not in self.events:
            self.events.append((csr.name, reason))

    def _add_condition(self, csr: Csr, kind: str, reason: str, message: str) -> Csr:
        current = self._begin(f"{kind} {reason}", csr)
        if {kind, *current.conditions} >= {"Approved", "Denied"}:
            # The API server refuses a CSR with both conditions. For a client that is no conflict.
            raise ApiServerUnavailable("status 422")
        condition = Condition(type=kind, reason=reason, message=message)
        return self.put(replace(current, conditions={**current.conditions, kind: condition}))

    def _begin(self, what: str, judged: Csr) -> Csr:
        self.writes.append(what)
        if self.interrupt is not None and len(self.writes) == self.interrupt_before:
            self.interrupt()
        current = self.stored.get(judged.name)
        if current is None or current.resource_version != judged.resource_version:
            raise CsrChanged("changed since it was read")
        return current
