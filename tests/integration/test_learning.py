"""Learning mode: from the first boots to a policy, and to the first different boot (Q4)."""

from subprocess import CalledProcessError

import pytest

from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.harness.signer import Signer
from tests.integration import audit_log, csrs


def renew(node: Node) -> str:
    """Renew, and return the error."""
    call = node.call("renew", "--kubeconfig", str(node.kubeconfig()))
    return call.complaint if call.status else ""


def test_boots_of_good_nodes_are_learned_and_enforced(machines: Machines, signer: Signer) -> None:
    nodes = [machines.registered() for _ in range(3)]
    for node in nodes:
        assert node.call().status == 0
        audit_log.logged(signer, node, "issued")
    good, also_good, other = nodes
    with signer.with_policies(signer.learn(good.tenant, good.name, also_good.name)):
        assert renew(good) == ""
        assert renew(also_good) == ""
        assert "PcrPolicyMismatch" in renew(other)
        old_value = good.tpm.pcrs["sha256"][4].hex()
        good.tpm.extend(4, b"another boot loader")
        error_text = renew(good)
        assert "PcrPolicyMismatch" in error_text
        # Only the operator may see the expected value.
        assert old_value not in error_text
        assert old_value not in str(good.tenant.workload.admin.list(csrs.CSRS))
        *_, line = audit_log.logged(signer, good, "denied")
        assert (line["reason"], line["check"]) == ("PcrPolicyMismatch", "Q4")
        now = good.tpm.pcrs["sha256"][4].hex()
        assert line["detail"].startswith(f"sha256:4 is {now}, allowed ")
        assert old_value in line["detail"]
        assert "sha256:7" not in line["detail"]
    # The signer ended just after the refusal, which its next process must show.
    refused = csrs.claim(good, machines.fleet.management.admin)["lastRefusal"]
    assert refused["reason"] == "PcrPolicyMismatch"


def test_nodes_missing_from_the_log_are_reported(signer: Signer, machines: Machines) -> None:
    node = machines.power_on()
    with pytest.raises(CalledProcessError, match="exit status 1"):
        signer.learn(node.tenant, node.name)
