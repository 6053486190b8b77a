"""join on a real cluster: from bootstrap-kubelet.conf to a kubeconfig that client-go uses."""

import json
import stat

import pytest

from authenticator.state import credential
from tests.harness import kubeconfig
from tests.harness.controlplane import KubectlFailed
from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.harness.programs import PLUGIN
from tests.integration import csrs, timeouts
from tests.integration.node_join import join, join_arguments, kubelet_conf, run_plugin, whoami

pytestmark = pytest.mark.usefixtures("signer")


def exec_info_of_client_go(node: Node) -> bytes:
    """Return KUBERNETES_EXEC_INFO as the real client-go passes it to the exec plugin."""
    exec_info, spy, config = (node.directory / name for name in ("exec-info", "spy", "spied.conf"))
    spy.write_text(f'#!/bin/sh\nprintf %s "$KUBERNETES_EXEC_INFO" >{exec_info}\nexit 1\n')
    spy.chmod(0o755)
    config.write_text(kubelet_conf(node).read_text().replace(str(PLUGIN.resolve()), str(spy)))
    with pytest.raises(KubectlFailed, match="failed with exit code 1"):
        node.tenant.workload.kubectl("get", "--raw", "/version", config=config)
    return exec_info.read_bytes()


def test_first_call_after_a_join_is_answered_from_the_cache(machines: Machines) -> None:
    node = machines.registered()
    joined = join(node)
    assert (joined.status, joined.complaint) == (0, "")
    assert joined.output.startswith(f"{node.name}: certificate until ")
    assert stat.S_IMODE(kubelet_conf(node).stat().st_mode) == 0o600
    assert whoami(node) == f"system:node:{node.name}"
    assert len(csrs.of_node(node)) == 2
    records = (node.state / "runs.jsonl").read_text().splitlines()
    assert [json.loads(record)["result"] for record in records] == ["started", "done"]


@pytest.mark.parametrize(
    "settings", [(), ("--timeout-seconds=45", "--event-log-file=/n/<&>/\u2028ä'\"", "--provider=n")]
)
def test_certificate_is_for_the_exec_info_of_client_go(
    machines: Machines, settings: tuple[str, ...]
) -> None:
    """The launcher compares these bytes, on each supported Kubernetes version."""
    node = machines.registered()
    assert join(node, *settings).status == 0
    cached = credential.decode((node.state / "credential.pem").read_bytes())
    assert cached.exec_info == exec_info_of_client_go(node)
    assert cached.arguments == ()


def test_second_join_sends_no_request(machines: Machines) -> None:
    node = machines.registered()
    assert join(node).status == 0
    node.bootstrap_kubeconfig.unlink()
    before = kubelet_conf(node).read_bytes()
    again = join(node)
    assert (again.status, again.complaint) == (0, "")
    assert "already" in again.output
    assert kubelet_conf(node).read_bytes() == before


def test_join_killed_before_the_kubeconfig_files_nothing_again(
    machines: Machines,
) -> None:
    node = machines.registered()
    assert join(node).status == 0
    kubelet_conf(node).unlink()
    assert join(node).status == 0
    assert len(csrs.of_node(node)) == 2


def give_identity(node: Node, provider_id: str) -> str:
    """Write what the platform says about the machine, and return the flag that makes join ask."""
    path = node.directory / "identity.yaml"
    path.write_text(f"{{providerID: '{provider_id}', nodeName: '{node.name}'}}", encoding="utf-8")
    return f"--provider=file:{path}"


def without_identity(arguments: list[str]) -> list[str]:
    """Return the arguments without the flags that name the machine."""
    return [word for word in arguments if not word.startswith(("--node-name", "--provider-id"))]


def test_reset_host_joins_as_the_machine_that_it_is_now(machines: Machines) -> None:
    """`kubeadm reset` leaves the state directory, with a valid certificate of the old name."""
    old = machines.registered()
    assert join(old).status == 0
    kubelet_conf(old).unlink()
    machines.forget(old)
    reset = Node(old.tenant, f"{old.name}-again", old.tpm, old.directory)
    reset.give_token(reset.tenant.workload.bootstrap_token())
    machines.register(reset)
    joined = join(reset)
    assert joined.status == 0, joined.complaint
    assert f"has the certificate of node {old.name}" in joined.complaint
    assert whoami(reset) == f"system:node:{reset.name}"


def test_disk_copied_from_a_node_does_not_act_as_that_node(machines: Machines) -> None:
    """An image made from a running node has its kubelet.conf and its key."""
    origin = machines.registered()
    flag = give_identity(origin, origin.provider_id)
    assert run_plugin(*without_identity(join_arguments(origin)), flag).status == 0
    copy = Node(origin.tenant, f"{origin.name}-copy", machines.tpm(), origin.directory)
    give_identity(copy, copy.provider_id)
    copied = kubelet_conf(origin).read_text().replace(origin.tpm.tcti, copy.tpm.tcti)
    kubelet_conf(copy).write_text(copied)
    copy.bootstrap_kubeconfig.unlink()
    noticed = run_plugin(*without_identity(join_arguments(copy)), flag)
    assert noticed.status == 2
    assert f"node {origin.name}, provider ID {origin.provider_id}" in noticed.complaint
    assert "BootstrapCredentialUnusable" in noticed.complaint
    assert not (copy.state / "credential.pem").exists()
    assert (copy.state / "foreign.pem").exists(), "nothing is destroyed before its replacement"


@pytest.mark.parametrize("tpm", ["answers", "is away"])
def test_other_answer_of_the_provider_does_not_end_a_live_node(
    machines: Machines, tpm: str
) -> None:
    """It deleted the certificate for good; a release that corrects a form did it to a fleet."""
    node = machines.registered()
    flag = give_identity(node, node.provider_id)
    assert run_plugin(*without_identity(join_arguments(node)), flag).status == 0
    node.bootstrap_kubeconfig.unlink()
    give_identity(node, f"corrected-{node.provider_id}")
    if tpm == "is away":
        node.tpm.power_off()
    again = run_plugin(*without_identity(join_arguments(node)), flag)
    assert again.status == 0
    expected = "the TPM is the same" if tpm == "answers" else "cannot tell whether this disk was"
    assert expected in again.complaint
    assert whoami(node) == f"system:node:{node.name}"


def test_join_without_a_certificate_leaves_no_kubeconfig(machines: Machines) -> None:
    node = machines.power_on()
    timeouts.enough(
        lambda budget: join(node, budget), lambda end: "MachineNotFound" in end.complaint
    )
    assert not kubelet_conf(node).exists()
    machines.register(node)
    assert join(node).status == 0


def test_first_control_plane_node_replaces_its_unattested_certificate(machines: Machines) -> None:
    """`kubeadm init` signs this certificate. With --replace, join also gets an attested one."""
    node = machines.registered()
    workload = node.tenant.workload
    pair = workload.client_authority.client(f"system:node:{node.name}", "system:nodes")
    kubelet_conf(node).parent.mkdir()
    kubelet_conf(node).write_text(
        kubeconfig.with_certificate(workload.url, workload.authority.pair.certificate, pair),
        encoding="utf-8",
    )
    node.bootstrap_kubeconfig.unlink()
    cached = join(node)
    assert cached.status == 2
    assert "KubeconfigNotOurs" in cached.complaint
    assert join(node, "--replace").status == 0
    assert whoami(node) == f"system:node:{node.name}"
    assert {csr["spec"]["username"] for csr in csrs.of_node(node)} == {f"system:node:{node.name}"}
