"""`kubectl attestation collect` writes no secret, no key and no free text into a bug report."""

import base64
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.harness.client import Client
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.management import NAMESPACE
from tests.harness.process import wait_until
from tests.integration import csrs
from tests.integration.operator_calls import call_operator, cluster_of, key_of
from tests.integration.policies import stored_policy
from tests.integration.scripted_node import Script

pytestmark = pytest.mark.usefixtures("signer")

MARKER = "marker-7f3a9c"
"""It has the form of a name, so only fields that are not listed may have it."""
CAPI = "/apis/cluster.x-k8s.io/v1beta2/namespaces/{}"
API = "/api/v1/namespaces/{}"
ANNOTATED = {"metadata": {"annotations": {"example.org/note": MARKER}, "labels": {"a": MARKER}}}
POD = {
    "metadata": {
        "name": "signer-1",
        "labels": {"app.kubernetes.io/name": "node-attestation-signer", "a": MARKER},
        "annotations": {"example.org/note": MARKER},
    },
    "spec": {
        "containers": [
            {
                "name": "signer",
                "image": f"registry.example/{MARKER}",
                "args": [f"--token={MARKER}"],
                "env": [{"name": "TOKEN", "value": MARKER}],
            }
        ],
        "serviceAccountName": "collected",
        "automountServiceAccountToken": False,
    },
}


def read_archive(path: Path) -> dict[str, str]:
    """Return the files of an archive by their names."""
    with tarfile.open(path) as archive:
        files = {member.name: archive.extractfile(member) for member in archive}
        return {n.partition("/")[2]: f.read().decode() for n, f in files.items() if f is not None}


def names_of(objects: list[Any]) -> list[str | None]:
    """Return the names in a file. One that may hold a digest is left out: other tests make them."""
    return [each["metadata"].get("name") for each in objects]


def is_reported(admin: Client, machine: str) -> bool:
    """Return whether the signer has written that the node of a Machine has attested."""
    conditions = admin.get(machine).get("status", {}).get("conditions", ())
    return ("KubeletAttested", "True") in [(each["type"], each["status"]) for each in conditions]


def test_archive_has_what_a_bug_report_needs_and_no_marker(
    fleet: Fleet, machines: Machines, tmp_path: Path
) -> None:
    admin = fleet.management.admin
    node, unknown = machines.registered(), machines.known(fleet.first)
    tenant = node.tenant
    assert node.call().status == 0
    offer = Script(unknown)
    offer.waiting_for("EndorsementKeyNotRegistered")
    namespace, capi = API.format(tenant.namespace), CAPI.format(tenant.namespace)
    claims = csrs.ATTESTED_NODES.format(tenant.namespace)
    [claim] = [c for c in admin.list(claims) if c["spec"]["nodeName"] == node.name]
    machine = f"{capi}/machines/{node.name}"
    wait_until(lambda: is_reported(admin, machine), what="the signer reports after the certificate")
    for path in (
        f"{capi}/clusters/{tenant.name}",
        machine,
        f"{csrs.ENDORSEMENT_KEYS}/{key_of(node)}",
        f"{claims}/{claim['metadata']['name']}",
    ):
        admin.patch(path, ANNOTATED)
    secret = {"value": base64.b64encode(MARKER.encode()).decode()}
    for place in (namespace, API.format(NAMESPACE)):
        admin.create(f"{place}/secrets", {"metadata": {"name": "planted"}, "data": secret})
    account = {"metadata": {"name": "collected"}}
    admin.create(f"{API.format(NAMESPACE)}/serviceaccounts", account)
    admin.create(f"{API.format(NAMESPACE)}/pods", POD)
    event: dict[str, Any] = {
        "metadata": {"name": "planted"},
        "involvedObject": {"kind": "Machine", "namespace": tenant.namespace, "name": node.name},
        "source": {"component": "node-attestation-signer"},
        "reason": "RenewalOverdue",
        "message": MARKER,
    }
    admin.create(f"{namespace}/events", event)
    tenant.workload.admin.patch(f"{csrs.CSRS}/{offer.offer}", ANNOTATED)
    trust = {"trust": "Certified", "certificateAuthorities": [f"/{MARKER}"]}
    report = tmp_path / "report.tar.gz"
    with stored_policy(fleet, "planted", {"endorsementKey": trust, MARKER: MARKER}):
        call = call_operator(
            fleet.management.admin_config, "collect", report, "--cluster", cluster_of(tenant)
        )
    for planted in ("pods/signer-1", "serviceaccounts/collected", "secrets/planted"):
        admin.delete(f"{API.format(NAMESPACE)}/{planted}")
    admin.delete(f"{namespace}/secrets/planted")
    # No kubelet runs the Pod, so its log cannot be read.
    assert call.status == 3, call
    assert "pods/signer-1/log.json is missing" in call.complaint
    files = read_archive(report)
    everything = "\n".join(f"{name}\n{content}" for name, content in files.items())
    keys = key_of(node), key_of(unknown)
    forbidden = (MARKER, secret["value"], *keys, "BEGIN", "system:bootstrap")
    assert [text for text in forbidden if text in everything] == []
    present = {name for name in files if f"{name}  " in files["MANIFEST"]}
    assert present == files.keys() - {"MANIFEST"}
    shown = {name: json.loads(text) for name, text in files.items() if name != "MANIFEST"}
    assert node.name in [each["spec"]["nodeName"] for each in shown["attested-nodes.json"]]
    assert shown["leases.json"]
    label = "attestation.cluster.x-k8s.io/signer-settings"
    assert all(label in each["metadata"]["labels"] for each in shown["leases.json"])
    machine_names = names_of(shown["machines.json"])
    collected = shown["machines.json"][machine_names.index(node.name)]
    conditions = {c["type"]: c["status"] for c in collected["status"]["conditions"]}
    assert conditions["KubeletAttested"] == "True"
    assert offer.offer in names_of(shown[f"csrs/{tenant.namespace}/{tenant.name}.json"])
    policies = shown["policies.json"]
    assert policies[names_of(policies).index("planted")]["spec"] == {
        "endorsementKey": {"trust": "Certified"}
    }
    assert "RenewalOverdue" in [each["reason"] for each in shown["events.json"]]
    assert names_of(shown["pods.json"]) == ["signer-1"]
