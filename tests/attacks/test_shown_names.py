"""What an operator is shown: names that API servers send, and the commands that contain them.

A tenant runs the API server of its workload cluster, which may send any text as the name of an
object. `problems` printed such a name as part of the operator's next command. So an object whose
name does not have the form that Kubernetes requires is unreadable, and each command is quoted.
"""

import ast
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from common.names import CLIENT_SIGNER
from signer.inventory.caches import read_node
from signer.inventory.cluster_api.cluster import read_cluster
from signer.inventory.cluster_api.machine_object import read_machine, read_pool
from signer.inventory.custom_resources.policy_object import read_policy
from signer.kinds.attested_node import read_attested_node
from signer.kinds.endorsement_key import read_endorsement_key
from signer.kinds.key_request import read_key_request
from signer.kube.csrs import read_csr
from signer.kube.leases import read_lease
from signer.kube.secrets import read_secret
from tests.builders.kube_objects import (
    DIGEST,
    HOME,
    PROVIDER_ID,
    cluster,
    endorsement_key,
    machine,
    metadata,
    pool,
    secret,
)

ROOT = Path(__file__).parents[2]
TIME = "2026-01-02T03:04:05Z"
META = {"name": "a", "uid": "u", "resourceVersion": "1", "creationTimestamp": TIME, "generation": 1}
CLAIM = {"clusterName": HOME.name, "nodeName": "node-1", "providerID": PROVIDER_ID}
OF_CLUSTER = {"clusterNamespace": HOME.namespace, "clusterName": HOME.name}
KEYS = endorsement_key(
    registeredFor=[{**OF_CLUSTER, "machineName": "m"}, {**OF_CLUSTER, "nodeName": "n"}],
    releasedFrom=[OF_CLUSTER],
    heldBy={**OF_CLUSTER, "nodeName": "n", "providerID": PROVIDER_ID, "basis": "Registered"},
)
ATTESTED_NODE = {
    **CLAIM,
    "machineName": "machine-1",
    "endorsementKey": DIGEST,
    "notAfter": TIME,
    "lastAttested": TIME,
    "lastRefusal": {"reason": "Refused", "message": "", "time": TIME, "request": "csr-1"},
}
OFFERED = {
    "sha256": DIGEST,
    "nodeName": "node-1",
    "requester": "system:bootstrap:abcdef",
    "firstSeen": TIME,
    "certificate": {"status": "Trusted"},
}
KEY_REQUEST = {"clusterName": HOME.name, "machineUID": "u", "providerID": PROVIDER_ID}
OBJECTS: dict[Callable[[Any], object], dict[str, Any]] = {
    read_csr: {"metadata": META, "spec": {"signerName": CLIENT_SIGNER, "request": "YQ=="}},
    read_node: {"metadata": META},
    read_machine: machine() | {"status": {"nodeRef": {"name": "node-1"}}},
    read_pool: pool(),
    read_cluster: cluster(),
    read_secret: secret("s", {}, namespace="ns", resourceVersion="1"),
    read_lease: {"metadata": META},
    read_policy: {"metadata": META, "spec": {}},
    read_endorsement_key: KEYS,
    read_attested_node: {
        "metadata": metadata(f"node-1.{HOME.name}", resourceVersion="1"),
        "spec": ATTESTED_NODE,
    },
    read_key_request: {
        "metadata": metadata("machine-1", resourceVersion="1"),
        "spec": {**KEY_REQUEST, "keys": [OFFERED]},
    },
}
HOSTILE = (
    "x --cluster a/b; touch pwned",
    "$(touch pwned)",
    "--all",
    "../nodes",
    "node-1\n",
    "n\u043ede-1",
    "\x1b]0;node-1\x07",
    "n" * 254,
)
"""A command, a substitution, an option, a path, a line, a letter of another alphabet, an escape
sequence of a terminal, and a name that is too long."""
IS_NAME = re.compile(r"name|namespace|request|\w+(?<!signer)(?:Name|Namespace)")


def names(value: Any, *path: str | int) -> Iterator[tuple[str | int, ...]]:  # noqa: ANN401 # JSON
    """Yield the paths of the names in an object. The `spec.request` of a CSR holds no name."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if isinstance(item, dict | list):
            yield from names(item, *path, key)
        elif IS_NAME.fullmatch(str(key)) and (*path, key) != ("spec", "request"):
            yield (*path, key)


CASES = [(read, path) for read, body in OBJECTS.items() for path in names(body)]


def test_the_good_case_is_read() -> None:
    for read, body in OBJECTS.items():
        read(body)
    assert len(CASES) >= 30


@pytest.mark.parametrize(
    ("read", "path"), CASES, ids=lambda p: p.__name__ if callable(p) else ".".join(map(str, p))
)
def test_object_with_a_hostile_name_is_unreadable(
    read: Callable[[Any], object], path: tuple[str | int, ...]
) -> None:
    field = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    for name in HOSTILE:
        body = deepcopy(OBJECTS[read])
        target: Any = body
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = name
        with pytest.raises(ValueError, match=rf"Expected `str` .* at `\${re.escape(field)}`"):
            read(body)


def test_no_other_module_puts_a_value_into_a_command() -> None:
    """`printed_command` quotes each word and refuses a value that would be an option."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for program in ("authenticator", "common", "signer")
        for path in sorted((ROOT / program).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.JoinedStr) and has_value_in_command(node)
    ]
    assert found == []


COMMAND = re.compile(r"\b(kubectl|kubelet-authenticator-tpm|node-attestation\S*|systemctl) [-a-z]")


def has_value_in_command(text: ast.JoinedStr) -> bool:
    """Return whether a value stands within a command in an f-string; a backtick ends it."""
    parts = [p.value if isinstance(p, ast.Constant) else "{}" for p in text.values]
    started = COMMAND.split("".join(map(str, parts)), maxsplit=1)
    return len(started) > 1 and "{}" in started[-1].partition("`")[0]
