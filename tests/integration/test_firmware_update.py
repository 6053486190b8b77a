"""A firmware update of several nodes: refused, reviewed as one group, accepted, and cleaned up.

An update that the vendor predicts and signs is imported before it, and refuses no node.
"""

import base64
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.harness.client import Object
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.management import POLICIES
from tests.harness.node import Node
from tests.harness.process import wait_until
from tests.harness.signer import of_cluster
from tests.integration import csrs
from tests.integration.measured_nodes import PCRS, boot, renew, values
from tests.integration.operator_calls import Operator, cluster_of
from tests.integration.policies import stored_policy
from tests.integration.scripted_node import Script

LABEL = {"firmware-update": "yes"}
MACHINES = "/apis/cluster.x-k8s.io/v1beta2/namespaces/{}/machines/{}"


def rules() -> dict[str, Any]:
    """Allow version 1.4 for the Machines of this test: other tests leave nodes behind."""
    variant = {
        "machineSelector": {"matchLabels": LABEL},
        "allowed": {"sha256": {index: [value] for index, value in values("1.4").items()}},
    }
    pcrs = {"mode": "Enforce", "selection": {"sha256": [*PCRS]}, "variants": [variant]}
    return {"pcrs": pcrs, "eventLog": {"secureBoot": True}}


def groups(operator: Operator, state: str) -> list[Object]:
    call = operator.call("pcrs", "review", "-o", "json")
    refused = [item for item in call.items if item["state"] == "NotAllowed"]
    assert call.status == (1 if refused else 0), call
    return [i for i in call.items if (i["policy"], i["state"]) == ("firmware-update", state)]


def follow(operator: Operator, group: Object, *flags: str) -> str:
    """Run the next step of a group, and return the answer."""
    call = operator.call(*shlex.split(group["nextStep"])[2:], *flags, "--yes")
    assert call.status == 0, call
    return call.output


def pcrs(fleet: Fleet) -> Object:
    found: Object = fleet.management.admin.get(f"{POLICIES}/firmware-update")["spec"]["pcrs"]
    assert found["mode"] == "Enforce"
    return found


def allowed(fleet: Fleet) -> Object:
    found: Object = pcrs(fleet)["variants"][0]["allowed"]["sha256"]
    return found


def joined(fleet: Fleet, machines: Machines) -> list[Node]:
    nodes = [machines.registered() for _ in range(3)]
    for node in nodes:
        path = MACHINES.format(node.tenant.namespace, node.name)
        fleet.management.admin.patch(path, {"metadata": {"labels": LABEL}})
        boot(node, "1.4")
    for node in nodes:
        assert node.call().status == 0
    return nodes


def wait_for_group(operator: Operator, nodes: int) -> Object:
    def counts() -> list[int]:
        return [group["nodes"] for group in groups(operator, "NotAllowed")]

    wait_until(lambda: counts() == [nodes], what=f"one group of {nodes} nodes", seconds=120, poll=2)
    [group] = groups(operator, "NotAllowed")
    return group


@pytest.mark.usefixtures("signer")
def test_updated_nodes_are_accepted_as_one_group_and_the_old_value_is_withdrawn(
    fleet: Fleet, machines: Machines
) -> None:
    operator = Operator(fleet, fleet.management.admin_config)
    with stored_policy(fleet, "firmware-update", of_cluster(fleet.first, **rules())) as policy:
        policy.wait_for("Ready", "True", "InForce")
        nodes = joined(fleet, machines)
        for node in nodes:
            boot(node, "1.5")
            assert "PcrPolicyMismatch" in renew(node)
        group = wait_for_group(operator, len(nodes))
        _attack(fleet, machines, nodes[0])
        assert groups(operator, "NotAllowed") == [group]
        old, new = values("1.4"), values("1.5")
        assert group["change"] == 'PCR 0, firmware "1.4" to "1.5"'
        assert group["values"] == [f"sha256:0 {new['0']}"]
        assert group["clusters"] == [cluster_of(fleet.first)]
        problems = operator.call("problems", "--cluster", cluster_of(fleet.first), "-o", "json")
        steps = {row["nextStep"] for row in problems.items if row["object"] == nodes[0].name}
        assert steps == {"kubectl attestation pcrs review"}

        short = operator.call("pcrs", "accept", group["group"][:12], "--yes")
        assert (short.status, "with all 64 digits" in short.complaint) == (2, True)
        assert operator.call("pcrs", "accept", group["group"]).status == 1, "the answer is missing"
        assert allowed(fleet)["0"] == [old["0"]]
        assert "firmware-update: changed" in follow(operator, group, "--until", "2998-12-31")
        assert pcrs(fleet)["until"] == [{"value": new["0"], "time": "2999-01-01T00:00:00Z"}]
        both = {index: sorted({old[index], new[index]}) for index in old}
        assert allowed(fleet) == both
        policy.wait_for("Ready", "True", "InForce")
        for node in nodes:
            assert renew(node) == ""
        assert groups(operator, "NotAllowed") == []

        [unused] = groups(operator, "Unused")
        assert unused["values"] == [f"sha256:0 {old['0']}"]
        follow(operator, unused)
        assert allowed(fleet)["0"] == [new["0"]]
        policy.wait_for("Ready", "True", "InForce")
        boot(nodes[0], "1.4")
        assert "PcrPolicyMismatch" in renew(nodes[0])


def predictions(directory: Path, vendor: ec.EllipticCurvePrivateKey, version: str) -> Path:
    """Write what a vendor predicts of a version, as pcrsys does, with the signature beside it."""
    file = directory / f"{version}.json"
    pcrs = {index: {"sha256": [value]} for index, value in values(version).items()}
    file.write_text(json.dumps({"pcrs": pcrs}), encoding="utf-8")
    signature = vendor.sign(file.read_bytes(), ec.ECDSA(hashes.SHA256()))
    (directory / f"{file.name}.sig").write_bytes(base64.encodebytes(signature))
    return file


@pytest.mark.usefixtures("signer")
def test_update_that_its_vendor_predicts_refuses_no_node(
    fleet: Fleet, machines: Machines, tmp_path: Path
) -> None:
    operator = Operator(fleet, fleet.management.admin_config)
    vendor = ec.generate_private_key(ec.SECP256R1())
    key = tmp_path / "vendor.pub"
    spki = PublicFormat.SubjectPublicKeyInfo
    key.write_bytes(vendor.public_key().public_bytes(Encoding.PEM, spki))
    zero = {"sha256": {str(index): ["00" * 32] for index in PCRS}}
    rule = {"mode": "Enforce", "selection": {"sha256": [*PCRS]}, "allowed": zero}
    with stored_policy(fleet, "firmware-update", of_cluster(fleet.first, pcrs=rule)) as policy:

        def import_version(version: str) -> None:
            file = predictions(tmp_path, vendor, version)
            call = operator.call(
                *("pcrs", "import", file, "--key", key, "--policy", "firmware-update"),
                *("--until", "2998-12-31", "--yes"),
            )
            assert call.status == 0, call
            policy.wait_for("Ready", "True", "InForce")

        import_version("1.4")
        node = machines.registered()
        boot(node, "1.4")
        assert node.call().status == 0
        import_version("1.5")
        assert renew(node) == ""
        boot(node, "1.5")
        assert renew(node) == ""
        old = values("1.4")["0"]
        assert pcrs(fleet)["until"] == [{"value": old, "time": "2999-01-01T00:00:00Z"}]


def _attack(fleet: Fleet, machines: Machines, node: Node) -> None:
    """Ask in the name of a node with another TPM: the operator must see nothing of it."""
    before = csrs.claim(node, fleet.management.admin)
    stranger = machines.power_on(name=node.name)
    boot(stranger, "9.9")
    assert Script(stranger).refusal() == "EndorsementKeyMismatch"
    assert csrs.claim(node, fleet.management.admin) == before
