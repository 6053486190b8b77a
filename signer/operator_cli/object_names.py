"""Names of objects on the management cluster, for the completion of arguments.

The shell waits for them: a cluster that does not answer in time has no names, and no error is
shown.
"""

import shlex
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from threading import Thread
from typing import Any, Final

from common.errors import AttestationError
from signer.kinds.attested_node import ATTESTED_NODES
from signer.kinds.cluster import ClusterKey
from signer.kinds.endorsement_key import ENDORSEMENT_KEYS
from signer.kinds.key_request import KEY_REQUESTS
from signer.kinds.policy import POLICIES
from signer.kinds.resources import CLUSTER, MACHINE, Kind, Resource
from signer.kube.discovery import find_resource
from signer.operator_cli.errors import CommandError
from signer.operator_cli.management.api import ManagementApi, connect

_WAIT_SECONDS: Final = 3.0

Body = dict[str, Any]


def read_names(
    arguments: Namespace, read: Callable[[ManagementApi, Namespace], Iterable[str]]
) -> Sequence[str]:
    """Return what `read` yields, sorted; nothing if that takes too long or fails.

    `arguments` are those that were typed before.
    """
    found: list[str] = []

    def fill() -> None:
        try:
            api = connect(arguments.kubeconfig, arguments.context, arguments.as_user)
            found.extend(sorted(set(filter(_is_plain_word, read(api, arguments)))))
        except (CommandError, AttestationError, ValueError, LookupError):
            return

    thread = Thread(target=fill, daemon=True)
    thread.start()
    thread.join(_WAIT_SECONDS)
    return list(found)


def clusters(api: ManagementApi, _: Namespace) -> Iterable[str]:
    """Yield the Clusters, as `NAMESPACE/NAME`."""
    return map(_full_name, _bodies(api, CLUSTER))


def machines(api: ManagementApi, arguments: Namespace) -> Iterable[str]:
    """Yield the Machines of the Cluster that was typed before, or all Machines."""
    cluster: ClusterKey | None = arguments.cluster
    for body in _bodies(api, MACHINE, "" if cluster is None else cluster.namespace):
        if cluster is None or body["spec"]["clusterName"] == cluster.name:
            yield body["metadata"]["name"]


def waiting_machines(api: ManagementApi, _: Namespace) -> Iterable[str]:
    """Yield the Machines for which unknown TPMs were offered, as `NAMESPACE/NAME`.

    The keys are left out: an operator has to take the key from the machine, not from an offer.
    """
    return map(_full_name, api.list_objects(KEY_REQUESTS.collection_path(), left_out=[]))


def keys(api: ManagementApi, arguments: Namespace) -> Iterable[str]:
    """Yield the recorded keys, and the nodes of claims as `NAMESPACE/CLUSTER/NODE`."""
    yield from _names(api, ENDORSEMENT_KEYS)
    yield from nodes(api, arguments)


def policies(api: ManagementApi, _: Namespace) -> Iterable[str]:
    """Yield the names of the KubeletAttestationPolicies."""
    return _names(api, POLICIES)


def nodes(api: ManagementApi, _: Namespace) -> Iterable[str]:
    """Yield the nodes of claims, as `NAMESPACE/CLUSTER/NODE`."""
    for body in api.list_objects(ATTESTED_NODES.collection_path(), left_out=[]):
        spec = body["spec"]
        yield f"{body['metadata']['namespace']}/{spec['clusterName']}/{spec['nodeName']}"


def _names(api: ManagementApi, resource: Resource) -> Iterable[str]:
    bodies = api.list_objects(resource.collection_path(), left_out=[])
    return (body["metadata"]["name"] for body in bodies)


def _bodies(api: ManagementApi, kind: Kind, namespace: str = "") -> Sequence[Body]:
    resource = find_resource(api, kind)
    if resource is None:
        return []
    return api.list_objects(resource.collection_path(namespace), left_out=[])


def _is_plain_word(name: str) -> bool:
    """Return whether a shell reads a name as it is."""
    return shlex.quote(name) == name


def _full_name(body: Body) -> str:
    metadata = body["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}"
