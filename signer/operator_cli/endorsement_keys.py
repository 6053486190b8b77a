"""Finds and changes EndorsementKey objects, each change under the resource version that was read.

Operators own `registeredFor`, `releasedFrom` and `banned`; the signer owns `heldBy`. A merge patch
replaces whole lists, so a change is made again from what is stored when another one came first.
"""

import json
import re
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from common.names import API_GROUP, API_VERSION
from signer.inventory.claim_objects import MOVE_LABELS, read_attested_node
from signer.inventory.claims import ATTESTED_NODES, ENDORSEMENT_KEYS
from signer.kube.decode import Json
from signer.kube.discovery import namespaced_path
from signer.model import ClusterKey, attested_node_name
from signer.operator_cli.errors import InputInvalid, Rejected, ServerUnavailable
from signer.operator_cli.keys import parse_digest
from signer.operator_cli.management import ManagementApi

KeyBody = dict[str, Any]
Change = Callable[[KeyBody], Json | None]
"""Returns the patch of `spec` for a stored object, or `None` if nothing has to change."""
_ATTEMPTS: Final = 5
_PREFIX: Final = re.compile(r"[0-9a-f]{6,63}")
_NODE: Final = re.compile(r"([^/]+)/([^/]+)/([^/]+)")


def find_key(api: ManagementApi, text: str) -> str:
    """Return the name of the EndorsementKey that an operator means.

    `text` is its digest, a unique beginning of it, or NAMESPACE/CLUSTER/NODE.

    Raises:
        Rejected: no object, or more than one, fits.

    """
    digest = parse_digest(text)
    if digest is not None:
        return digest
    node = _NODE.fullmatch(text)
    if node:
        return _key_of_node(api, ClusterKey(namespace=node[1], name=node[2]), node[3])
    prefix = text.removeprefix("sha256:").lower()
    if not _PREFIX.fullmatch(prefix):
        raise InputInvalid(
            f"{text!r} must be a key or NAMESPACE/CLUSTER/NODE",
            hint="a key is `sha256:<hex>`, or the first 6 digits or more of a recorded key",
        )
    names = [body["metadata"]["name"] for body in api.list_objects(ENDORSEMENT_KEYS)]
    matching = sorted(name for name in names if name.startswith(prefix))
    if len(matching) != 1:
        raise Rejected(
            f"{len(matching) or 'no'} recorded keys begin with {prefix}",
            hint="run the command `nodes -o wide` for the keys of nodes, or give all 64 digits",
        )
    return str(matching[0])


def read_key_body(api: ManagementApi, name: str) -> KeyBody | None:
    """Return the stored EndorsementKey, `None` if it does not exist."""
    response = api.find(_path(name))
    if response is None:
        return None
    body: KeyBody = json.loads(response.content)
    return body


def change_key(api: ManagementApi, name: str, change: Change, *, pem: str | None = None) -> str:
    """Apply a change to an EndorsementKey, and create the object if it does not exist.

    Returns what was done: `created`, `changed` or `unchanged`. Raises `CommandError`.
    """
    for _ in range(_ATTEMPTS):
        stored = read_key_body(api, name)
        spec = change(stored or {})
        if spec is None:
            return "unchanged"
        if pem is not None and not (stored or {}).get("spec", {}).get("publicKey"):
            spec = {**spec, "publicKey": pem}
        if stored is None:
            answer = api.create(ENDORSEMENT_KEYS, _new(name, spec), accepted=(201, 409))
            if answer.status == HTTPStatus.CREATED:
                return "created"
            continue
        metadata = {"resourceVersion": stored["metadata"]["resourceVersion"]}
        patch = {"metadata": metadata, "spec": spec}
        answer = api.merge_patch(_path(name), patch, accepted=(200, 404, 409))
        if answer.status == HTTPStatus.OK:
            return "changed"
    raise ServerUnavailable(
        f"EndorsementKey {name} changes all the time", hint="run the command again"
    )


def registrations_of(body: KeyBody) -> list[dict[str, str]]:
    """Return `spec.registeredFor`."""
    return list(body.get("spec", {}).get("registeredFor") or ())


def releases_of(body: KeyBody) -> list[dict[str, str]]:
    """Return `spec.releasedFrom`."""
    return list(body.get("spec", {}).get("releasedFrom") or ())


def is_banned(body: KeyBody) -> bool:
    """Return whether the key is banned, with any content."""
    return body.get("spec", {}).get("banned") is not None


def holder_of(body: KeyBody) -> dict[str, str] | None:
    """Return `spec.heldBy`."""
    holder: dict[str, str] | None = body.get("spec", {}).get("heldBy")
    return holder


def describe_holder(body: KeyBody) -> str:
    """Return the node that holds the key, as a phrase."""
    holder = holder_of(body)
    if holder is None:
        return "no node holds this key"
    place = f"{holder['clusterNamespace']}/{holder['clusterName']}"
    return f"node {holder['nodeName']} of Cluster {place} holds this key"


def _key_of_node(api: ManagementApi, cluster: ClusterKey, node: str) -> str:
    name = attested_node_name(cluster, node)
    collection = namespaced_path(ATTESTED_NODES, cluster.namespace)
    response = api.find(f"{collection}/{quote(name, safe='')}")
    if response is None:
        raise Rejected(
            f"node {node} of Cluster {cluster.namespace}/{cluster.name} has never attested",
            hint="run the command `nodes` for the names of nodes",
        )
    return response.read(read_attested_node).endorsement_key


def _new(name: str, spec: Json) -> Json:
    return {
        "apiVersion": f"{API_GROUP}/{API_VERSION}",
        "kind": "EndorsementKey",
        "metadata": {"name": name, "labels": dict(MOVE_LABELS)},
        "spec": spec,
    }


def _path(name: str) -> str:
    return f"{ENDORSEMENT_KEYS}/{quote(name, safe='')}"
