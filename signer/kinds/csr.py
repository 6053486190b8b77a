"""A CertificateSigningRequest of a workload cluster."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from common.requests.binding import sha256

_CREDENTIAL_ID_PREFIX: Final = "X509SHA256="
CREDENTIAL_ID_PATTERN: Final = f"{_CREDENTIAL_ID_PREFIX}[0-9a-f]{{64}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition of a CSR."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Csr:
    """A CertificateSigningRequest. The requester chooses annotations and request freely."""

    name: str
    uid: str
    resource_version: str
    created: datetime
    signer_name: str
    username: str
    groups: frozenset[str]
    credential_id: str
    """Digest of the client certificate that filed the request, as the API server writes it.

    Empty for other credentials, and from API servers before Kubernetes 1.32.
    """
    usages: tuple[str, ...]
    expiration_seconds: int | None
    request: bytes
    annotations: Mapping[str, str]
    """The annotations that the signer reads."""
    annotations_size: int
    """Bytes of all annotations, as JSON."""
    conditions: Mapping[str, Condition]
    certificate: bytes | None


def credential_id(certificate_der: bytes) -> str:
    """Return the ID that API servers give to a client certificate, `X509SHA256=<hex>`."""
    return _CREDENTIAL_ID_PREFIX + sha256(certificate_der).hex()


def is_credential_id(value: str) -> bool:
    """Return whether a text has the form of `credential_id`."""
    return re.fullmatch(CREDENTIAL_ID_PATTERN, value) is not None
