"""The management cluster of the insecure signer, read without caches: its Clusters are few."""

from datetime import datetime
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import msgspec

from common.errors import ApiServerUnavailable
from common.names import ANNOTATION_PREFIX
from signer.errors import ClaimConflict, NotOptedIn
from signer.insecure.objects import list_objects
from signer.insecure.verify import RecordedMachine
from signer.inventory.cluster import ClusterObject, build_cluster, read_cluster
from signer.inventory.machine import (
    MachineObject,
    build_machine,
    read_infrastructure,
    read_machine,
)
from signer.inventory.policy_object import POLICY, read_policy
from signer.kube.client import ApiClient
from signer.kube.decode import Fields, MaybeText, Source, Text, decode
from signer.kube.discovery import collection_path, namespaced_path
from signer.kube.events import EventRecorder, ObjectReference
from signer.model import Cluster, ClusterKey, Csr, Machine
from signer.policy import Policy, PolicySet, RefusedPolicy

RECORD_ANNOTATION: Final = ANNOTATION_PREFIX + "insecure-certificate"
"""On a Machine: the UID of the one CSR that may get its certificate."""
_CLUSTER: Final = ("cluster.x-k8s.io", "Cluster")
_MACHINE: Final = ("cluster.x-k8s.io", "Machine")


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
        response = self._api.get(self._path(_CLUSTER, key.namespace, key.name), accepted=(200, 404))
        if response.status == HTTPStatus.NOT_FOUND:
            raise NotOptedIn("the Cluster does not exist")
        return response.read(read_cluster)

    def with_signers(self, cluster: ClusterObject) -> Cluster:
        """Return the Cluster with the client signers that it or its infrastructure names."""
        reference, named = cluster.infrastructure, None
        if cluster.authentication and reference is not None:
            kind = (reference.group, reference.kind)
            path = self._path(kind, reference.namespace, reference.name)
            named = self._api.get(path).read(read_infrastructure).client_signer
        return build_cluster(cluster, named, hosts=(), auto_approve_bindings=())

    def selecting_policies(self, cluster: ClusterObject) -> tuple[Policy | RefusedPolicy, ...]:
        """Return the KubeletAttestationPolicies that select the Cluster, or all Clusters."""
        path = collection_path(self._api, *POLICY)
        if path is None:
            return ()
        policies = [entry.policy for entry in list_objects(self._api, path, read_policy)]
        policy_set = PolicySet(
            accepted=tuple(p for p in policies if isinstance(p, Policy)),
            refused=tuple(p for p in policies if isinstance(p, RefusedPolicy)),
        )
        return policy_set.selecting(cluster.key, cluster.labels)

    def machines(self, key: ClusterKey) -> list[RecordedMachine]:
        """Return all Machines of a Cluster, with their records."""
        path = self._path(_MACHINE, key.namespace)
        return [
            RecordedMachine(
                machine=build_machine(machine, None, None),
                resource_version=recorded.metadata.resource_version,
                certified_csr=(recorded.metadata.annotations or _Annotations()).record,
            )
            for machine, recorded in list_objects(self._api, path, _read_recorded)
            if machine.cluster == key
        ]

    def record(self, key: ClusterKey, recorded: RecordedMachine, csr: Csr) -> None:
        """Write that this CSR may get the Machine's certificate, and no other CSR.

        The write is under the resource version of the Machine that was verified. Of two replicas
        that verified the same Machine, one wins.

        Raises:
            ClaimConflict: the Machine was changed since.

        """
        if recorded.certified_csr == csr.uid:
            return
        machine = recorded.machine
        metadata = {
            "uid": machine.uid,
            "resourceVersion": recorded.resource_version,
            "annotations": {RECORD_ANNOTATION: csr.uid},
        }
        path = self._path(_MACHINE, key.namespace, machine.name)
        response = self._api.merge_patch(path, {"metadata": metadata}, accepted=(200, 404, 409))
        if response.status != HTTPStatus.OK:
            raise ClaimConflict("the Machine was changed since it was verified")

    def warn(self, regarding: ObjectReference, reason: str, message: str, now: datetime) -> None:
        """Create a Warning Event, unless the same one exists."""
        self._events.record(regarding, reason, message, now)

    def cluster_reference(self, cluster: ClusterObject) -> ObjectReference:
        """Return the object of an Event about a Cluster."""
        return self._reference(_CLUSTER, cluster.key.namespace, cluster.key.name, cluster.uid)

    def machine_reference(self, key: ClusterKey, machine: Machine) -> ObjectReference:
        """Return the object of an Event about a Machine."""
        return self._reference(_MACHINE, key.namespace, machine.name, machine.uid)

    def _reference(
        self, kind: tuple[str, str], namespace: str, name: str, uid: str
    ) -> ObjectReference:
        version, _, _ = self._collection(kind).removeprefix("/apis/").rpartition("/")
        return ObjectReference(
            api_version=version, kind=kind[1], namespace=namespace, name=name, uid=uid
        )

    def _path(self, kind: tuple[str, str], namespace: str, name: str = "") -> str:
        path = namespaced_path(self._collection(kind), namespace)
        return f"{path}/{quote(name, safe='')}" if name else path

    def _collection(self, kind: tuple[str, str]) -> str:
        path = collection_path(self._api, *kind)
        if path is None:
            raise ApiServerUnavailable(f"the management cluster has no kind {kind[1]}")
        return path


def _read_recorded(source: Source) -> tuple[MachineObject, _Recorded]:
    return read_machine(source), decode(source, _Recorded)
