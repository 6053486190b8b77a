"""EndorsementKeyRequests: the keys that were offered for Machines without a registered key.

Only the signer writes them, and no check reads them. `clusterctl move` leaves them: the next offer
creates them again. Source: docs/decisions/0033-unknown-tpms-as-requests.md.
"""

from typing import Annotated, Any, Final

import msgspec

from common.names import API_GROUP, API_VERSION
from signer.kinds.cluster import ClusterKey, shared_cluster_key
from signer.kinds.decode import ClusterName, Fields, Name, Source, decode
from signer.kinds.record import (
    ATOMIC,
    Column,
    Definition,
    Digest,
    MachineUid,
    NamespacedMetadata,
    ProviderId,
    Record,
    Short,
    Time,
    encode,
    rules,
    with_metadata,
)
from signer.kinds.resources import Resource

KEY_REQUESTS: Final = Resource(
    API_GROUP, API_VERSION, "EndorsementKeyRequest", "endorsementkeyrequests"
)
MAX_OFFERED_KEYS: Final = 4
"""Keys of one Machine. Two are a conflict already; the first ones stay."""
MAX_NAME: Final = 512
"""Characters of the name of a machine or a requester, as of a provider ID."""


class OfferedCertificate(Record, frozen=True, kw_only=True):
    """What an endorsement certificate says; empty where it says nothing readable."""

    status: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    """Trusted if the certificate is for this key and chains to a root of the policy, else the
    reason why not."""
    manufacturer: Short = ""
    """Manufacturer of the TPM, as the letters of its vendor ID."""
    model: Short = ""
    """Model of the TPM."""
    firmware: Short = ""
    """Firmware version of the TPM, as its vendor encodes it."""
    certified_for: Annotated[str, msgspec.Meta(max_length=MAX_NAME)] = ""
    """The machine that the certificate names, an instance of Google or a domain of libvirt."""


class OfferedKey(Record, frozen=True, kw_only=True):
    """An endorsement key that an offer names for a Machine. The TPM has not proved it."""

    sha256: Digest
    """SHA-256 of the SubjectPublicKeyInfo of the key, the name of its EndorsementKey."""
    node_name: Name
    """Node name that the request asks for."""
    requester: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)]
    """User name of the requester in the workload cluster."""
    first_seen: Time
    """When the signer first saw the key in an offer for this Machine."""
    certificate: OfferedCertificate
    """What the endorsement certificate says. Anyone can write such a certificate unless the status
    is Trusted."""


class EndorsementKeyRequestSpec(Record, frozen=True, kw_only=True):
    """The Machine and the keys."""

    cluster_name: Annotated[ClusterName, rules(("self == oldSelf", "the Cluster must not change"))]
    """Name of the Cluster, in this namespace."""
    machine_uid: Annotated[MachineUid, rules(("self == oldSelf", "the Machine must not change"))]
    """UID of the Machine."""
    provider_id: ProviderId
    """Provider ID of the Machine when the first key was offered."""
    keys: Annotated[
        tuple[OfferedKey, ...],
        msgspec.Meta(min_length=1, max_length=MAX_OFFERED_KEYS),
        ATOMIC,
        rules(("oldSelf.all(key, key in self)", "a key that was offered must stay")),
    ]
    """The keys, in the order in which they were first offered. More than one is a conflict: the
    machine has one of them, or none. When the list is full, further keys are not added."""


class EndorsementKeyRequest(EndorsementKeyRequestSpec, frozen=True, kw_only=True):
    """EndorsementKeyRequest has the keys that were offered for a Machine without a registered key.

    It has the name and the namespace of the Machine. Nothing in it is proved: a stolen bootstrap
    token suffices to offer a key. `kubectl attestation approve` registers one of its keys. The
    signer creates it, and deletes it when the Machine is gone or has a registered key.
    """

    name: str
    namespace: str
    uid: str
    resource_version: str

    @property
    def cluster(self) -> ClusterKey:
        """Return the key of the Cluster."""
        return shared_cluster_key(self.namespace, self.cluster_name)


DEFINITION: Final = Definition(
    resource=KEY_REQUESTS,
    kind=EndorsementKeyRequest,
    spec=EndorsementKeyRequestSpec,
    short_name="ekr",
    columns=(
        Column(name="Cluster", path=".spec.clusterName", description="Name of the Cluster"),
        Column(
            name="Node",
            path=".spec.keys[0].nodeName",
            description="Node name that the first requester asked for",
        ),
        Column(
            name="Key",
            path=".spec.keys[0].sha256",
            description="The key that was offered first, as SHA-256",
        ),
        Column(
            name="Certificate",
            path=".spec.keys[0].certificate.status",
            description="Trusted, or the reason why the endorsement certificate of this key is not"
            " trusted",
        ),
        Column(
            name="Other key",
            path=".spec.keys[1].sha256",
            description="Another key that was offered for the same Machine, a conflict",
        ),
        Column(name="Age", path=".metadata.creationTimestamp", type="date"),
    ),
)


class _Object(Fields):
    metadata: NamespacedMetadata
    spec: EndorsementKeyRequestSpec


def read_key_request(source: Source) -> EndorsementKeyRequest:
    """Read an EndorsementKeyRequest. Raises `ValueError`."""
    found = decode(source, _Object)
    return with_metadata(EndorsementKeyRequest, found.spec, found.metadata)


def encode_key_request(request: EndorsementKeyRequest) -> dict[str, Any]:
    """Return the body of a new EndorsementKeyRequest; its UID and version are not written."""
    return KEY_REQUESTS.manifest(
        metadata={"name": request.name, "namespace": request.namespace},
        spec=encode(request, EndorsementKeyRequestSpec),
    )
