"""CertificateSigningRequests: read into values, and the writes that a verdict ends in.

Every write carries the resource version that was judged: whatever was written meanwhile, by the
requester's side or another signer, makes it fail, and the CSR is looked at again.
"""

import base64
import binascii
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from common.names import BUILTIN_SERVING_SIGNER, CLIENT_SIGNER, SERVING_SIGNER
from signer.errors import AnnotationsFull, CsrChanged
from signer.kube.client import ApiClient, Response
from signer.kube.fields import (
    Json,
    annotations,
    get_objects,
    get_path,
    get_str,
    get_strings,
    require_str,
    require_time,
)
from signer.model import Condition, Csr

CSRS: Final = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
_EVENTS: Final = "/api/v1/namespaces/default/events"
_SIGNERS: Final = frozenset({CLIENT_SIGNER, SERVING_SIGNER, BUILTIN_SERVING_SIGNER})
_SETTLED: Final = frozenset({"Denied", "Failed"})
_COMPONENT: Final = "node-attestation-signer"
_CHANGED: Final = (HTTPStatus.OK, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)


def read_csr(body: Json) -> Csr:
    """Read a CSR.

    Raises `ValueError` for an object that the API server would not have stored.
    """
    expiration = get_path(body, "spec", "expirationSeconds")
    return Csr(
        name=require_str(body, "metadata", "name"),
        uid=require_str(body, "metadata", "uid"),
        resource_version=require_str(body, "metadata", "resourceVersion"),
        created=require_time(body, "metadata", "creationTimestamp"),
        signer_name=require_str(body, "spec", "signerName"),
        username=get_str(body, "spec", "username") or "",
        groups=frozenset(get_strings(body, "spec", "groups")),
        usages=get_strings(body, "spec", "usages"),
        expiration_seconds=expiration if isinstance(expiration, int) else None,
        request=_bytes(require_str(body, "spec", "request")),
        annotations=annotations(body),
        conditions={
            require_str(c, "type"): Condition(
                type=require_str(c, "type"),
                reason=get_str(c, "reason") or "",
                message=get_str(c, "message") or "",
            )
            for c in get_objects(body, "status", "conditions")
        },
        certificate=_certificate(body),
    )


def read_pending_csr(body: Json) -> Csr | None:
    """Read a CSR that is still somebody's to judge: of a signer that is ours, and not settled."""
    if get_str(body, "spec", "signerName") not in _SIGNERS or _certificate(body) is not None:
        return None
    csr = read_csr(body)
    return None if _SETTLED & csr.conditions.keys() else csr


class CsrClient:
    """Writes to the CSRs of one workload cluster.

    Each method returns the CSR as it then is. Raises `CsrChanged` when it is not the one that was
    judged any more, `ApiServerUnavailable` when nothing is known of the outcome.
    """

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    def read(self, name: str) -> Csr | None:
        """Return the CSR as it is now, `None` when there is none."""
        answer = self._api.get(_path(name), accepted=(200, 404))
        return None if answer.status == HTTPStatus.NOT_FOUND else read_csr(answer.body)

    def annotate(self, csr: Csr, values: Mapping[str, str]) -> Csr:
        """Write annotations.

        Raises `AnnotationsFull` when the requester has left no room for them.
        """
        refused = (HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        answer = self._api.merge_patch(
            _path(csr.name),
            {"metadata": {**_judged(csr), "annotations": dict(values)}},
            accepted=(*_CHANGED, *refused),
        )
        if answer.status in refused:
            raise AnnotationsFull("the request's annotations leave no room for the signer's")
        return _written(answer)

    def approve(self, csr: Csr, reason: str, message: str) -> Csr:
        """Add the condition Approved."""
        return self._condition(csr, "approval", "Approved", reason, message)

    def deny(self, csr: Csr, reason: str, message: str) -> Csr:
        """Add the condition Denied."""
        return self._condition(csr, "approval", "Denied", reason, message)

    def fail(self, csr: Csr, reason: str, message: str) -> Csr:
        """Add the condition Failed, to a CSR that somebody has approved."""
        return self._condition(csr, "status", "Failed", reason, message)

    def set_certificate(self, csr: Csr, certificate: bytes) -> Csr:
        """Write the certificate; where there is one already, the CSR has changed."""
        body = {
            "metadata": _judged(csr),
            "status": {"certificate": base64.b64encode(certificate).decode()},
        }
        return _written(
            self._api.merge_patch(
                _path(csr.name, "status"),
                body,
                accepted=(*_CHANGED, HTTPStatus.UNPROCESSABLE_ENTITY),
            )
        )

    def delete(self, csr: Csr) -> None:
        """Delete the CSR."""
        preconditions = {"uid": csr.uid, "resourceVersion": csr.resource_version}
        answer = self._api.delete(_path(csr.name), preconditions, accepted=_CHANGED)
        if answer.status == HTTPStatus.CONFLICT:
            raise CsrChanged("the CSR was changed meanwhile")

    def record_event(self, csr: Csr, reason: str, message: str, now: datetime) -> None:
        """Write one Event about the CSR; its name makes a second one for the same reason fail."""
        digest = sha256(f"{csr.uid}/{reason}".encode()).hexdigest()
        when = now.strftime("%Y-%m-%dT%H:%M:%SZ")
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"csr.{digest[:40]}", "namespace": "default"},
            "involvedObject": {
                "apiVersion": "certificates.k8s.io/v1",
                "kind": "CertificateSigningRequest",
                "name": csr.name,
                "uid": csr.uid,
            },
            "type": "Warning",
            "reason": reason,
            "message": message,
            "source": {"component": _COMPONENT},
            "reportingComponent": _COMPONENT,
            "firstTimestamp": when,
            "lastTimestamp": when,
            "count": 1,
        }
        self._api.create(_EVENTS, event, accepted=(HTTPStatus.CREATED, HTTPStatus.CONFLICT))

    def _condition(self, csr: Csr, subresource: str, kind: str, reason: str, message: str) -> Csr:
        condition = {"type": kind, "status": "True", "reason": reason, "message": message}
        # A merge would replace the list, and with it what others wrote there.
        add: Json = {"op": "add", "path": "/status/conditions/-", "value": condition}
        if not csr.conditions:
            add = {"op": "add", "path": "/status/conditions", "value": [condition]}
        judged: Json = {
            "op": "replace",
            "path": "/metadata/resourceVersion",
            "value": csr.resource_version,
        }
        path = _path(csr.name, subresource)
        return _written(self._api.json_patch(path, [judged, add], accepted=_CHANGED))


def _judged(csr: Csr) -> dict[str, Any]:
    return {"uid": csr.uid, "resourceVersion": csr.resource_version}


def _written(answer: Response) -> Csr:
    if answer.status != HTTPStatus.OK:
        raise CsrChanged("the CSR was changed meanwhile")
    return read_csr(answer.body)


def _path(name: str, subresource: str = "") -> str:
    # CSR names may hold almost anything.
    path = f"{CSRS}/{quote(name, safe='')}"
    return f"{path}/{subresource}" if subresource else path


def _certificate(body: Json) -> bytes | None:
    certificate = get_str(body, "status", "certificate")
    return None if certificate is None else _bytes(certificate)


def _bytes(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as e:
        raise ValueError("not base64") from e
