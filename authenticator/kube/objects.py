"""Kubernetes objects on the node: JSON to values and back.

The API server may be hostile: nothing is believed of an answer but its kind, and what is not of the
kind that was asked for is `AnswerMalformed`.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from authenticator.model import Csr, CsrRequest
from common.errors import AnswerMalformed


def csr_document(request: CsrRequest) -> dict[str, object]:
    """Write the object that makes a CSR."""
    spec: dict[str, object] = {
        "request": b64encode(request.request).decode(),
        "signerName": request.signer_name,
        "usages": list(request.usages),
    }
    if request.expiration_seconds is not None:
        spec["expirationSeconds"] = request.expiration_seconds
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": request.name},
        "spec": spec,
    }


def csr(document: object) -> Csr:
    """Read a CertificateSigningRequest. Raises AnswerMalformed."""
    try:
        found = mapping(document)
        metadata, spec = mapping(found["metadata"]), mapping(found["spec"])
        status = mapping(found.get("status") or {})
        certificate = status.get("certificate")
        return Csr(
            uid=_text(metadata["uid"]),
            resource_version=_text(metadata["resourceVersion"]),
            spec=CsrRequest(
                name=_text(metadata["name"]),
                signer_name=_text(spec["signerName"]),
                usages=tuple(map(_text, _sequence(spec["usages"]))),
                expiration_seconds=_optional_integer(spec.get("expirationSeconds")),
                request=b64decode(_text(spec["request"]), validate=True),
            ),
            annotations={
                key: _text(value)
                for key, value in mapping(metadata.get("annotations") or {}).items()
            },
            conditions=dict(
                _condition(mapping(entry)) for entry in _sequence(status.get("conditions") or [])
            ),
            certificate=b64decode(_text(certificate), validate=True) if certificate else None,
        )
    except (KeyError, ValueError) as error:
        raise AnswerMalformed("the API server's answer is no CertificateSigningRequest") from error


def listed_csr(document: object) -> Csr | None:
    """Read a list of one CSR, or of none; it gets the list's version. Raises AnswerMalformed."""
    found = mapping(document)
    items = _sequence(found.get("items") or [])
    if not items:
        return None
    version = _text(mapping(found.get("metadata")).get("resourceVersion"))
    return replace(csr(items[0]), resource_version=version)


def _condition(entry: Mapping[str, object]) -> tuple[str, tuple[str, str]]:
    reason, message = (_text(entry.get(key) or "") for key in ("reason", "message"))
    return _text(entry["type"]), (reason, message)


def parsed(content: bytes) -> Any:  # noqa: ANN401
    """Read JSON."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise AnswerMalformed("the API server's answer is not JSON") from None


def mapping(value: object) -> Mapping[str, object]:
    """Take an object."""
    if not isinstance(value, dict):
        raise AnswerMalformed("the API server's answer is not of the kind that was asked for")
    return value


def _sequence(value: object) -> list[object]:
    if not isinstance(value, list):
        raise AnswerMalformed("the API server's answer is not of the kind that was asked for")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise AnswerMalformed("the API server's answer is not of the kind that was asked for")
    return value


def _optional_integer(value: object) -> int | None:
    if value is not None and type(value) is not int:
        raise AnswerMalformed("the API server's answer is not of the kind that was asked for")
    return value
