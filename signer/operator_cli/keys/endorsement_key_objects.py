"""Finds and changes EndorsementKey objects, each change under the resource version that was read.

Operators own `registeredFor`, `releasedFrom` and `banned`; the signer owns `heldBy`. A merge patch
replaces whole lists, so a change is made again from what is stored when another one came first.

No tenant can write these objects, which have no namespace. AttestedNodes are not read here: a
tenant may write those of its own namespace, and they can name the key of any node.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from signer.kinds.cluster import ClusterKey
from signer.kinds.decode import Json, read_as
from signer.kinds.endorsement_key import ENDORSEMENT_KEYS, MOVE_LABELS, EndorsementKeyObject
from signer.kube.transport.client import MAY_EXIST, MAY_HAVE_CHANGED
from signer.kube.unreadable import Unreadable
from signer.operator_cli.errors import InputInvalid, Rejected, ServerUnavailable
from signer.operator_cli.keys.key_input import KeyRegistration, parse_digest
from signer.operator_cli.management.api import ManagementApi

KeyBody = dict[str, Any]
Change = Callable[[KeyBody], Json | None]
"""Returns the patch of `spec` for a stored object, or `None` if nothing has to change."""
_ATTEMPTS: Final = 5
_PREFIX: Final = re.compile(r"[0-9a-f]{6,63}")
_NODE: Final = re.compile(r"([a-z0-9.-]+)/([a-z0-9.-]+)/([a-z0-9.-]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenKey:
    """The EndorsementKey that an operator means."""

    name: str
    cluster: ClusterKey | None = None
    """The Cluster that the operator named, whose node holds the key."""


def find_key(api: ManagementApi, text: str, *, banned: bool = False) -> ChosenKey:
    """Return the EndorsementKey that an operator means.

    `text` is its digest, a unique beginning of it, or NAMESPACE/CLUSTER/NODE. A node that got
    another TPM holds several keys: then only keys count that are banned, or not, as `banned` says.
    Raises `Rejected`: no object, or more than one, fits.
    """
    digest = parse_digest(text)
    if digest is not None:
        return ChosenKey(name=digest)
    node = _NODE.fullmatch(text)
    if node:
        cluster = ClusterKey(namespace=node[1], name=node[2])
        return ChosenKey(name=_key_of_node(api, cluster, node[3], banned=banned), cluster=cluster)
    prefix = text.removeprefix("sha256:").lower()
    if not _PREFIX.fullmatch(prefix):
        raise InputInvalid(
            f"{text!r} must be a key or NAMESPACE/CLUSTER/NODE",
            hint="a key is `sha256:<hex>`, or the first 6 digits or more of a recorded key",
        )
    left_out: list[Unreadable] = []
    bodies = api.list_objects(ENDORSEMENT_KEYS.collection_path(), left_out=left_out)
    names = [body["metadata"]["name"] for body in bodies] + [key.key for key in left_out]
    matching = sorted(name for name in names if name.startswith(prefix))
    if len(matching) != 1:
        raise Rejected(
            f"{len(matching) or 'no'} recorded keys begin with {prefix}",
            hint="run the command `nodes -o wide` for the keys of nodes, or give all 64 digits",
        )
    return ChosenKey(name=str(matching[0]))


def read_key_body(api: ManagementApi, name: str) -> KeyBody | None:
    """Return the stored EndorsementKey, `None` if it does not exist."""
    response = api.find(ENDORSEMENT_KEYS.object_path(name))
    if response is None:
        return None
    body: KeyBody = response.read(read_as(dict))
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
            path = ENDORSEMENT_KEYS.collection_path()
            metadata = {"name": name, "labels": dict(MOVE_LABELS)}
            body = ENDORSEMENT_KEYS.manifest(metadata=metadata, spec=spec)
            if api.create(path, body, accepted=MAY_EXIST).succeeded:
                return "created"
            continue
        version = stored["metadata"]["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version}, "spec": spec}
        path = ENDORSEMENT_KEYS.object_path(name)
        if api.merge_patch(path, patch, accepted=MAY_HAVE_CHANGED).succeeded:
            return "changed"
    raise ServerUnavailable(
        f"EndorsementKey {name} changes all the time", hint="run the command again"
    )


def unless_changed(shown: KeyBody, change: Change) -> Change:
    """Return the change for a key that is still whose it was when the operator was asked.

    An operator may think about the question for minutes. Renewals of the holder change nothing that
    `describe_key` says. The change raises `Rejected` if anything of it differs.
    """
    before = describe_key(shown)

    def checked(body: KeyBody) -> Json | None:
        present = describe_key(body)
        if present != before:
            raise Rejected(
                f"the EndorsementKey has changed since it was shown: {present}",
                hint="run the command again",
            )
        return change(body)

    return checked


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
    return f"node {holder['nodeName']} of Cluster {_cluster_text(holder)} holds this key"


def describe_key(body: KeyBody) -> str:
    """Return whose key it is, as a phrase: its holder, its registrations, and its ban."""
    machines = ", ".join(map(_registration_text, registrations_of(body)))
    parts = [describe_holder(body), *([f"it is registered for {machines}"] if machines else ())]
    if is_banned(body):
        ban = body["spec"]["banned"]
        reason = ban.get("reason") if isinstance(ban, dict) else None
        parts.append(f"it is banned ({reason})" if reason else "it is banned")
    return ", and ".join(parts)


def clusters_of(entries: Sequence[Mapping[str, str]]) -> set[ClusterKey]:
    """Return the Clusters that entries of an EndorsementKey name."""
    return {ClusterKey(namespace=e["clusterNamespace"], name=e["clusterName"]) for e in entries}


def held_elsewhere(key: EndorsementKeyObject, wanted: KeyRegistration) -> str | None:
    """Return the node that holds the key, as a phrase, if it is not the machine that is wanted."""
    holder = key.held_by
    if holder is None or (
        holder.cluster == wanted.cluster
        and wanted.provider_id in {None, holder.provider_id}
        and wanted.node in {None, holder.node_name}
    ):
        return None
    return f"node {holder.node_name} of Cluster {holder.cluster} holds the key {key.name}"


def registered_elsewhere(key: EndorsementKeyObject, wanted: KeyRegistration) -> str | None:
    """Return a registration of the key, as a phrase, for another machine than the wanted one."""
    for entry in key.registered_for:
        pairs = (
            (entry.machine_name, wanted.machine),
            (entry.provider_id, wanted.provider_id),
            (entry.node_name, wanted.node),
        )
        # What only one of the two names decides nothing.
        differs = any(one is not None and two is not None and one != two for one, two in pairs)
        if entry.cluster != wanted.cluster or differs:
            other = entry.machine_name or entry.provider_id or entry.node_name
            return f"the key {key.name} is registered for {other} of Cluster {entry.cluster}"
    return None


def _registration_text(entry: Mapping[str, str]) -> str:
    members = (("machineName", "Machine"), ("providerID", "provider ID"), ("nodeName", "node"))
    machine = " and ".join(f"{what} {entry[name]}" for name, what in members if entry.get(name))
    return f"{machine or 'no machine'} of Cluster {_cluster_text(entry)}"


def _cluster_text(entry: Mapping[str, str]) -> str:
    return f"{entry['clusterNamespace']}/{entry['clusterName']}"


def _key_of_node(api: ManagementApi, cluster: ClusterKey, node: str, *, banned: bool) -> str:
    fields = {
        "clusterNamespace": cluster.namespace,
        "clusterName": cluster.name,
        "nodeName": node,
    }
    selector = ",".join(f"spec.heldBy.{name}={value}" for name, value in fields.items())
    bodies = api.list_objects(ENDORSEMENT_KEYS.collection_path(), {"fieldSelector": selector})
    held = [body for body in bodies if fields.items() <= (holder_of(body) or {}).items()]
    matching = [body for body in held if is_banned(body) is banned] or held
    names = sorted(body["metadata"]["name"] for body in matching)
    place = f"node {node} of Cluster {cluster}"
    if not names:
        raise Rejected(
            f"{place} holds no endorsement key",
            hint="run the command `nodes` for the names of nodes, or give the key itself",
        )
    if len(names) > 1:
        raise Rejected(
            f"{place} holds several endorsement keys: {', '.join(names)}",
            hint="find out which one the machine has, and give the key itself",
        )
    return str(names[0])
