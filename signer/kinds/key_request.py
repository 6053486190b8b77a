"""EndorsementKeyRequests: the keys that were offered for Machines without a registered key.

Only the signer writes them, and no check reads them. Source:
docs/decisions/0033-unknown-tpms-as-requests.md, and the CRD in packaging/signer/crds.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec

from common.formats.strict_json import format_time
from common.names import API_GROUP, API_VERSION
from signer.kinds.cluster import ClusterKey
from signer.kinds.decode import Fields, MaybeText, Name, Namespace, Source, Text, Time, decode
from signer.kinds.resources import Resource

KEY_REQUESTS: Final = Resource(
    API_GROUP, API_VERSION, "EndorsementKeyRequest", "endorsementkeyrequests"
)

MAX_OFFERED_KEYS: Final = 4
"""Keys of one Machine. Two are a conflict already; the first ones stay."""

_MAX_NAME: Final = 512
"""Characters of the name of a machine, as of a provider ID."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TpmIdentity:
    """What an endorsement certificate says about its TPM; empty where it says nothing readable."""

    manufacturer: str = ""
    model: str = ""
    firmware: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedKey:
    """An endorsement key that an offer names for a Machine. The TPM has not proved it."""

    name: str
    """Name of its EndorsementKey: the digest of its SubjectPublicKeyInfo in hex."""
    node_name: str
    requester: str
    """User name of the requester, such as `system:bootstrap:<token ID>`."""
    first_seen: datetime
    certificate: str
    """`Trusted`, or the reason why the signer does not trust the endorsement certificate."""
    identity: TpmIdentity
    certified_for: str = ""
    """The machine that the endorsement certificate names; empty if it names none."""
    """From the certificate; anyone can write it unless `certificate` is `Trusted`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndorsementKeyRequest:
    """The keys offered for a Machine without a registered key; `name` is the Machine's."""

    cluster: ClusterKey
    name: str
    uid: str
    resource_version: str
    machine_uid: str
    provider_id: str
    keys: tuple[OfferedKey, ...]
    """In the order in which they were first seen; never replaced."""


class _Certificate(Fields):
    status: Text
    manufacturer: MaybeText = None
    model: MaybeText = None
    firmware: MaybeText = None
    certified_for: MaybeText = None


class _Key(Fields):
    sha256: Text
    node_name: Name
    requester: Text
    first_seen: Time
    certificate: _Certificate


class _Meta(Fields):
    name: Name
    namespace: Namespace
    uid: Text
    resource_version: Text


class _Spec(Fields):
    cluster_name: Name
    machine_uid: Text = msgspec.field(name="machineUID")
    provider_id: Text = msgspec.field(name="providerID")
    keys: Annotated[list[_Key], msgspec.Meta(min_length=1, max_length=MAX_OFFERED_KEYS)]


class _Request(Fields):
    metadata: _Meta
    spec: _Spec


def read_key_request(source: Source) -> EndorsementKeyRequest:
    """Read an EndorsementKeyRequest. Raises `ValueError`."""
    request = decode(source, _Request)
    metadata, spec = request.metadata, request.spec
    return EndorsementKeyRequest(
        cluster=ClusterKey(namespace=metadata.namespace, name=spec.cluster_name),
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        machine_uid=spec.machine_uid,
        provider_id=spec.provider_id,
        keys=tuple(map(_offered_key, spec.keys)),
    )


def encode_key_request(request: EndorsementKeyRequest) -> dict[str, Any]:
    """Return the body of a new EndorsementKeyRequest; its UID and version are not written."""
    return KEY_REQUESTS.manifest(
        metadata={"name": request.name, "namespace": request.cluster.namespace},
        spec={
            "clusterName": request.cluster.name,
            "machineUID": request.machine_uid,
            "providerID": request.provider_id,
            "keys": [encode_offered_key(key) for key in request.keys],
        },
    )


def _offered_key(key: _Key) -> OfferedKey:
    certificate = key.certificate
    return OfferedKey(
        name=key.sha256,
        node_name=key.node_name,
        requester=key.requester,
        first_seen=key.first_seen,
        certificate=certificate.status,
        identity=TpmIdentity(
            manufacturer=certificate.manufacturer or "",
            model=certificate.model or "",
            firmware=certificate.firmware or "",
        ),
        certified_for=certificate.certified_for or "",
    )


def encode_offered_key(key: OfferedKey) -> dict[str, Any]:
    """Return one entry of `spec.keys`."""
    identity = {
        "manufacturer": key.identity.manufacturer,
        "model": key.identity.model,
        "firmware": key.identity.firmware,
        "certifiedFor": key.certified_for[:_MAX_NAME],
    }
    known = {name: value for name, value in identity.items() if value}
    return {
        "sha256": key.name,
        "nodeName": key.node_name,
        "requester": key.requester,
        "firstSeen": format_time(key.first_seen),
        "certificate": {"status": key.certificate, **known},
    }
