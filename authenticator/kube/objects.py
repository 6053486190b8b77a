"""Kubernetes objects on the node: JSON to values and back.

The API server may be hostile, so each member is checked for its type. A response of another form is
`ApiResponseMalformed`.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from authenticator.errors import ApiResponseMalformed
from authenticator.model import Csr, CsrRequest

_WRONG_TYPE: Final = "a member of the API server's response has the wrong type"


def encode_csr(request: CsrRequest) -> dict[str, object]:
    """Return the CertificateSigningRequest object to create."""
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


def decode_csr(document: object) -> Csr:
    """Read a CertificateSigningRequest. Raises `ApiResponseMalformed`."""
    try:
        body = require_object(document)
        metadata, spec = require_object(body["metadata"]), require_object(body["spec"])
        status = require_object(body.get("status") or {})
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
                for key, value in require_object(metadata.get("annotations") or {}).items()
            },
            conditions=dict(
                _condition(require_object(entry))
                for entry in _sequence(status.get("conditions") or [])
            ),
            certificate=b64decode(_text(certificate), validate=True) if certificate else None,
        )
    except (KeyError, ValueError) as error:
        raise ApiResponseMalformed(
            "the API server's response is not a CertificateSigningRequest"
        ) from error


def decode_csr_list(document: object) -> Csr | None:
    """Read a list of at most one CSR, which gets the resourceVersion of the list.

    Raises `ApiResponseMalformed`.
    """
    body = require_object(document)
    items = _sequence(body.get("items") or [])
    if not items:
        return None
    version = _text(require_object(body.get("metadata")).get("resourceVersion"))
    return replace(decode_csr(items[0]), resource_version=version)


def _condition(entry: Mapping[str, object]) -> tuple[str, tuple[str, str]]:
    reason, message = (_text(entry.get(key) or "") for key in ("reason", "message"))
    return _text(entry["type"]), (reason, message)


def decode_json(content: bytes) -> Any:  # noqa: ANN401
    """Decode JSON. Raises `ApiResponseMalformed`."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise ApiResponseMalformed("the API server's response is not JSON") from None


def require_object(value: object) -> Mapping[str, object]:
    """Return the value if it is an object. Raises `ApiResponseMalformed`."""
    if not isinstance(value, dict):
        raise ApiResponseMalformed(_WRONG_TYPE)
    return value


def _sequence(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ApiResponseMalformed(_WRONG_TYPE)
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ApiResponseMalformed(_WRONG_TYPE)
    if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
        # JSON can hold it, but no request: it has no encoding.
        raise ApiResponseMalformed("a text of the API server has half of a surrogate pair")
    return value


def _optional_integer(value: object) -> int | None:
    if value is not None and type(value) is not int:
        raise ApiResponseMalformed(_WRONG_TYPE)
    return value
