"""The management cluster of the insecure signer, read without caches: its Clusters are few."""

from datetime import datetime
from typing import Final

import msgspec

from common.errors import ApiServerUnavailable
from common.names import ANNOTATION_PREFIX
from signer.errors import ClaimConflict, NotOptedIn
from signer.insecure.verify import RecordedMachine
from signer.inventory.cluster_api.cluster import ClusterObject, build_cluster, read_cluster
from signer.inventory.cluster_api.machine_object import MachineObject, build_machine, read_machine
from signer.inventory.cluster_api.references import read_infrastructure
from signer.inventory.custom_resources.policy_object import read_policy
from signer.kinds.cluster import Cluster, ClusterKey
from signer.kinds.csr import Csr
from signer.kinds.decode import Fields, MaybeText, Source, Text, decode
from signer.kinds.policy import POLICIES
from signer.kinds.resources import CLUSTER, MACHINE, Kind, Resource
from signer.kube.discovery import find_resource
from signer.kube.events import EventRecorder, ObjectReference
from signer.kube.pages import UNLIMITED, list_objects
from signer.kube.transport.client import MAY_HAVE_CHANGED, ApiClient
from signer.policy.policy import Policy, PolicySet, RefusedPolicy

RECORD_ANNOTATION: Final = ANNOTATION_PREFIX + "insecure-certificate"
"""On a Machine: the UID of the one CSR that may get its certificate."""


class _Annotations(Fields):
    record: MaybeText = msgspec.field(name=RECORD_ANNOTATION, default=None)


class _Meta(Fields):
    resource_version: Text
    annotations: _Annotations | None = None


class _Recorded(Fields):
    metadata: _Meta


class InsecureManagement:
    """Reads Clusters, policies and Machines, and writes records and Events.

    Raises `ApiServerUnavailable` when it cannot read or write.
    """

    def __init__(self, api: ApiClient, *, component: str) -> None:
        self._api = api
        self._events = EventRecorder(api, component=component)

    def cluster(self, key: ClusterKey) -> ClusterObject:
        """Return a Cluster. Raises `NotOptedIn` if it does not exist."""
        path = self._resource(CLUSTER).object_path(key.name, key.namespace)
        response = self._api.find(path)
        if response is None:
            raise NotOptedIn("the Cluster does not exist")
        return response.read(read_cluster)

    def with_signers(self, cluster: ClusterObject) -> Cluster:
        """Return the Cluster with the client signers that it or its infrastructure names."""
        reference, named = cluster.infrastructure, None
        if cluster.authentication and reference is not None:
            resource = self._resource((reference.group, reference.kind))
            path = resource.object_path(reference.name, reference.namespace)
            named = self._api.get(path).read(read_infrastructure).client_signer
        return build_cluster(cluster, named, hosts=(), auto_approve_bindings=())

    def selecting_policies(self, cluster: ClusterObject) -> tuple[Policy | RefusedPolicy, ...]:
        """Return the KubeletAttestationPolicies that select the Cluster, or all Clusters."""
        resource = find_resource(self._api, POLICIES.group_kind)
        if resource is None:
            return ()
        path = resource.collection_path()
        found = list_objects(self._api, path, read_policy, max_objects=UNLIMITED)
        policies = PolicySet.of(p.policy for p in found)
        return policies.selecting(cluster.key, cluster.labels)

    def machines(self, key: ClusterKey) -> list[RecordedMachine]:
        """Return all Machines of a Cluster, with their records."""
        path = self._resource(MACHINE).collection_path(key.namespace)
        return [
            RecordedMachine(
                machine=build_machine(machine, None, None),
                resource_version=recorded.metadata.resource_version,
                certified_csr=(recorded.metadata.annotations or _Annotations()).record,
            )
            for machine, recorded in list_objects(
                self._api, path, _read_recorded, max_objects=UNLIMITED
            )
            if machine.cluster == key
        ]

    def record(self, key: ClusterKey, recorded: RecordedMachine, csr: Csr) -> None:
        """Write that this CSR may get the Machine's certificate, and no other CSR.

        The write is under the resource version of the Machine that was verified. Of two replicas
        that verified the same Machine, one wins. Raises `ClaimConflict`: the Machine was changed
        since.
        """
        if recorded.certified_csr == csr.uid:
            return
        machine = recorded.machine
        metadata = {
            "uid": machine.uid,
            "resourceVersion": recorded.resource_version,
            "annotations": {RECORD_ANNOTATION: csr.uid},
        }
        path = self._resource(MACHINE).object_path(machine.name, key.namespace)
        response = self._api.merge_patch(path, {"metadata": metadata}, accepted=MAY_HAVE_CHANGED)
        if not response.succeeded:
            raise ClaimConflict("the Machine was changed since it was verified")

    def warn(self, regarding: ObjectReference, reason: str, message: str, now: datetime) -> None:
        """Create a Warning Event, unless the same one exists."""
        self._events.record(regarding, reason, message, now)

    def reference(self, kind: Kind, namespace: str, name: str, uid: str) -> ObjectReference:
        """Return the object of an Event."""
        version = self._resource(kind).api_version
        return ObjectReference(
            api_version=version, kind=kind[1], namespace=namespace, name=name, uid=uid
        )

    def _resource(self, kind: Kind) -> Resource:
        resource = find_resource(self._api, kind)
        if resource is None:
            raise ApiServerUnavailable(f"the management cluster has no kind {kind[1]}")
        return resource


def _read_recorded(source: Source) -> tuple[MachineObject, _Recorded]:
    return read_machine(source), decode(source, _Recorded)
