"""CertificateSigningRequests: reads them into values, and writes verdicts.

Every write carries the resource version of the CSR that was verified. If the CSR has changed since,
the write fails and the CSR is verified again.
"""

import base64
from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Final

import msgspec

from common.errors import ApiServerUnavailable
from common.names import (
    BUILTIN_SERVING_SIGNER,
    CHALLENGE_ANNOTATION,
    CLIENT_SIGNER,
    PENDING_REASON_ANNOTATION,
    SERVING_SIGNER,
)
from common.requests.csr import MAX_REQUEST
from signer.errors import AccessReviewUnavailable, AnnotationsFull, CsrChanged
from signer.fairness.memory_budget import deep_size
from signer.kinds.csr import Condition, Csr, is_credential_id
from signer.kinds.decode import (
    MAX_ENTRIES,
    Fields,
    Json,
    MaybeText,
    Name,
    Source,
    Text,
    Texts,
    Time,
    decode,
    texts,
)
from signer.kinds.resources import CSRS, SUBJECT_ACCESS_REVIEWS
from signer.kube.access_review import read_decided_review, read_requester
from signer.kube.events import COMPONENT, EventRecorder, ObjectReference
from signer.kube.transport.client import MAY_HAVE_CHANGED, ApiClient, Response

CREDENTIAL_ID_KEY: Final = "authentication.kubernetes.io/credential-id"
"""Key in a user's `extra` (Kubernetes 1.32 and later). The API server writes `spec.extra` of a CSR
from its requester, whatever the requester put there."""
_SIGNERS: Final = frozenset({CLIENT_SIGNER, SERVING_SIGNER, BUILTIN_SERVING_SIGNER})
_SETTLED: Final = frozenset({"Denied", "Failed"})
_MAX_MESSAGE: Final = 32 << 10
"""Characters of a condition's message: as metav1.Condition allows."""
_MAX_HELD: Final = 2 << 20
"""Bytes of memory of a CSR that a worker reads itself, and holds while it waits for API servers:
one of etcd's 1.5 MiB. No budget counts them, and the answer of a hostile API server may take 15 MiB
with letters beyond ASCII."""
_Version = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
"""A resource version. API servers write a number of 64 bits (KEP-5504). The workers remember those
that they wrote, which no budget counts."""
_Annotation = Annotated[str, msgspec.Meta(max_length=256 << 10)] | None
"""Kubernetes allows 256 KiB for all annotations of an object."""


class _Condition(Fields):
    type: Text
    reason: MaybeText = None
    message: Annotated[str, msgspec.Meta(max_length=_MAX_MESSAGE)] | None = None


class _Annotations(Fields):
    """Only the annotations that are read: a requester may add any number of others."""

    challenge: _Annotation = msgspec.field(name=CHALLENGE_ANNOTATION, default=None)
    pending_reason: _Annotation = msgspec.field(name=PENDING_REASON_ANNOTATION, default=None)


class _Extra(Fields):
    """Of what authenticators add to a user, only the entry for client certificates."""

    credential_id: Texts = msgspec.field(name=CREDENTIAL_ID_KEY, default=None)


_NO_ANNOTATIONS: Final = msgspec.Raw(b"null")


class _Meta(Fields):
    name: Name
    uid: Text
    resource_version: _Version
    creation_timestamp: Time
    annotations: msgspec.Raw = _NO_ANNOTATIONS
    """Decoded on its own, so that its size in bytes is known."""


class _Spec(Fields):
    signer_name: Text
    request: Annotated[bytes, msgspec.Meta(min_length=1, max_length=2 * MAX_REQUEST)]
    username: MaybeText = None
    groups: Texts = None
    extra: _Extra | None = None
    usages: Texts = None
    expiration_seconds: Annotated[int, msgspec.Meta(ge=600, le=2**31 - 1)] | None = None
    """Within the bounds of Kubernetes: a certificate can end so much later."""


class _Status(Fields):
    conditions: Annotated[list[_Condition], msgspec.Meta(max_length=MAX_ENTRIES)] | None = None
    certificate: Annotated[bytes, msgspec.Meta(max_length=MAX_REQUEST)] | None = None


class _Csr(Fields):
    metadata: _Meta
    spec: _Spec
    status: _Status | None = None


class _SignerSpec(Fields):
    signer_name: MaybeText = None


class _Deletion(Fields):
    deletion_timestamp: MaybeText = None


class _SignerOfCsr(Fields):
    metadata: _Deletion = msgspec.field(default_factory=_Deletion)
    spec: _SignerSpec | None = None


def read_csr(source: Source) -> Csr:
    """Read a CSR.

    Raises `ValueError` for an object that the API server would not have stored.
    """
    csr = decode(source, _Csr)
    raw_annotations = bytes(csr.metadata.annotations)
    annotations = (
        _Annotations()
        if raw_annotations == bytes(_NO_ANNOTATIONS)
        else decode(raw_annotations, _Annotations)
    )
    status = csr.status or _Status()
    return Csr(
        name=csr.metadata.name,
        uid=csr.metadata.uid,
        resource_version=csr.metadata.resource_version,
        created=csr.metadata.creation_timestamp,
        signer_name=csr.spec.signer_name,
        username=csr.spec.username or "",
        groups=frozenset(texts(csr.spec.groups)),
        credential_id=_credential_id(csr.spec.extra),
        usages=texts(csr.spec.usages),
        expiration_seconds=csr.spec.expiration_seconds,
        # One byte too many is enough for P1 to deny it as too large.
        request=csr.spec.request[: MAX_REQUEST + 1],
        annotations={
            name: value
            for name, value in (
                (CHALLENGE_ANNOTATION, annotations.challenge),
                (PENDING_REASON_ANNOTATION, annotations.pending_reason),
            )
            if value is not None
        },
        annotations_size=len(raw_annotations),
        conditions={
            c.type: Condition(type=c.type, reason=c.reason or "", message=c.message or "")
            for c in status.conditions or ()
        },
        certificate=status.certificate or None,
    )


def _credential_id(extra: _Extra | None) -> str:
    """Return the ID of a client certificate; empty for other credentials, and for several."""
    values = texts(extra.credential_id) if extra is not None else ()
    return values[0] if len(values) == 1 and is_credential_id(values[0]) else ""


def read_pending_csr(source: Source) -> Csr | None:
    """Read a CSR of one of our signers that is neither settled nor deleted; `None` for others."""
    found = decode(source, _SignerOfCsr)
    if found.spec is None or found.spec.signer_name not in _SIGNERS:
        # Other signers' CSRs need not be within our bounds.
        return None
    if found.metadata.deletion_timestamp is not None:
        # It was deleted, but a finalizer of its requester keeps it.
        return None
    csr = read_csr(source)
    return None if is_settled(csr) else csr


def is_settled(csr: Csr) -> bool:
    """Return whether the CSR has a certificate, or is denied or failed."""
    return csr.certificate is not None or not _SETTLED.isdisjoint(csr.conditions)


class CsrClient:
    """Writes to the CSRs of one workload cluster.

    Each method returns the CSR after the write. Raises `CsrChanged` when the CSR is no longer the
    one that was verified, and `ApiServerUnavailable` when the outcome is unknown.
    """

    def __init__(self, api: ApiClient, *, component: str = COMPONENT) -> None:
        """Name `component` as the source of the Events."""
        self._api = api
        self._events = EventRecorder(api, component=component)

    def read(self, name: str) -> Csr | None:
        """Return the CSR from the API server, `None` if it does not exist."""
        response = self._api.find(CSRS.object_path(name))
        return None if response is None else response.read(_read_held)

    def may_create(self, csr: Csr, subresource: str) -> bool:
        """Return whether RBAC allows the requester a subresource of CSRs, for the CSR's signer.

        Reads the CSR: the cache has neither `uid` nor `extra` of its requester. Raises
        `AccessReviewUnavailable`: the API server does not decide.
        """
        try:
            body = _review(self._read_requester(csr), csr, subresource)
            review = self._api.create(SUBJECT_ACCESS_REVIEWS.collection_path(), body)
            return review.read(read_decided_review)
        except ApiServerUnavailable as error:
            raise AccessReviewUnavailable(
                f"the SubjectAccessReview failed: {error.message}", detail=error.detail
            ) from error

    def _read_requester(self, csr: Csr) -> Json:
        response = self._api.find(CSRS.object_path(csr.name))
        if response is None:
            raise CsrChanged("the CSR was deleted")
        uid, requester = response.read(read_requester)
        if uid != csr.uid:
            raise CsrChanged("the CSR was created again")
        return requester

    def annotate(self, csr: Csr, values: Mapping[str, str | None]) -> Csr:
        """Write annotations, and remove those whose value is `None`.

        Raises `AnnotationsFull` when the requester's annotations leave no room for them.
        """
        refused = {HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.REQUEST_ENTITY_TOO_LARGE}
        response = self._api.merge_patch(
            CSRS.object_path(csr.name),
            {"metadata": {**_preconditions(csr), "annotations": dict(values)}},
            accepted=MAY_HAVE_CHANGED | refused,
        )
        if response.status in refused:
            raise AnnotationsFull("the request's annotations leave no room for the signer's")
        return _written(response)

    def approve(self, csr: Csr, reason: str, message: str) -> Csr:
        """Add the condition Approved."""
        return self._condition(csr, "approval", "Approved", reason, message)

    def deny(self, csr: Csr, reason: str, message: str) -> Csr:
        """Add the condition Denied."""
        return self._condition(csr, "approval", "Denied", reason, message)

    def fail(self, csr: Csr, reason: str, message: str) -> Csr:
        """Add the condition Failed, to a CSR that is approved already."""
        return self._condition(csr, "status", "Failed", reason, message)

    def set_certificate(self, csr: Csr, certificate: bytes) -> Csr:
        """Write the certificate. Raises `CsrChanged` where there is one already."""
        body = {
            "metadata": _preconditions(csr),
            "status": {"certificate": base64.b64encode(certificate).decode()},
        }
        path = CSRS.object_path(csr.name, subresource="status")
        accepted = MAY_HAVE_CHANGED | {HTTPStatus.UNPROCESSABLE_ENTITY}
        return _written(self._api.merge_patch(path, body, accepted=accepted))

    def delete(self, csr: Csr) -> None:
        """Delete the CSR."""
        path = CSRS.object_path(csr.name)
        response = self._api.delete(path, _preconditions(csr), accepted=MAY_HAVE_CHANGED)
        if response.status == HTTPStatus.CONFLICT:
            raise CsrChanged("the CSR was changed since it was verified")

    def record_event(self, csr: Csr, reason: str, message: str, now: datetime) -> None:
        """Create an Event about the CSR, unless the same one exists."""
        regarding = ObjectReference(
            api_version=CSRS.api_version,
            kind=CSRS.kind,
            namespace="",
            name=csr.name,
            uid=csr.uid,
        )
        self._events.record(regarding, reason, message, now)

    def _condition(self, csr: Csr, subresource: str, kind: str, reason: str, message: str) -> Csr:
        condition = {"type": kind, "status": "True", "reason": reason, "message": message}
        # A merge patch would replace the list, and with it others' conditions.
        add: Json = {"op": "add", "path": "/status/conditions/-", "value": condition}
        if not csr.conditions:
            add = {"op": "add", "path": "/status/conditions", "value": [condition]}
        precondition: Json = {
            "op": "replace",
            "path": "/metadata/resourceVersion",
            "value": csr.resource_version,
        }
        path = CSRS.object_path(csr.name, subresource=subresource)
        return _written(self._api.json_patch(path, [precondition, add], accepted=MAY_HAVE_CHANGED))


def _preconditions(csr: Csr) -> dict[str, str]:
    return {"uid": csr.uid, "resourceVersion": csr.resource_version}


def _written(response: Response) -> Csr:
    if not response.succeeded:
        raise CsrChanged("the CSR was changed since it was verified")
    return response.read(_read_held)


def _read_held(source: Source) -> Csr:
    csr = read_csr(source)
    if deep_size(csr) > _MAX_HELD:
        raise ValueError("the CSR takes over 2 MiB of memory")
    return csr


def _review(requester: Json, csr: Csr, subresource: str) -> Json:
    """Return the review of kube-controller-manager's approver, limited to the CSR's signer."""
    attributes = {
        "group": CSRS.group,
        "version": "*",
        "resource": CSRS.plural,
        "subresource": subresource,
        "name": csr.signer_name,
        "verb": "create",
    }
    return SUBJECT_ACCESS_REVIEWS.manifest(spec={**requester, "resourceAttributes": attributes})
