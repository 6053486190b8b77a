"""A node joins, renews and uses its certificate with a real plugin, signer, TPM and API server."""

import json
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.node import Node, finished
from tests.harness.objects import Machine
from tests.harness.process import wait_until
from tests.harness.programs import PLUGIN
from tests.harness.signer import Signer
from tests.harness.tpm_relay import RC_FAILURE, TpmRelay, refuse
from tests.integration import audit_log, csrs

pytestmark = pytest.mark.usefixtures("signer")


def whoami(node: Node) -> str:
    """Ask the workload API server with kubectl, which runs the plugin."""
    return node.tenant.workload.kubectl(
        "auth", "whoami", "-o", "jsonpath={.status.userInfo.username}", config=node.kubeconfig()
    )


def test_node_joins_with_a_certificate_in_its_own_name(machines: Machines, fleet: Fleet) -> None:
    node = machines.registered()
    credential = node.call().credential
    leaf = x509.load_pem_x509_certificate(credential["clientCertificateData"].encode())
    claimed = csrs.claim(node, fleet.management.admin)
    assert sorted((attribute.oid.dotted_string, attribute.value) for attribute in leaf.subject) == [
        (NameOID.ORGANIZATION_NAME.dotted_string, f"attested:{claimed['endorsementKey'][:32]}.1"),
        (NameOID.ORGANIZATION_NAME.dotted_string, "system:nodes"),
        (NameOID.COMMON_NAME.dotted_string, f"system:node:{node.name}"),
    ]
    usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert claimed["providerID"] == node.provider_id
    assert claimed["endorsementKey"] in next(iter(node.registration().values()))
    until = leaf.not_valid_after_utc.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert claimed["notAfter"] == until
    assert whoami(node) == f"system:node:{node.name}"


def test_kubectl_shows_the_fleet(machines: Machines, fleet: Fleet) -> None:
    node = machines.registered()
    assert node.call().status == 0
    header, *rows = fleet.management.kubectl("get", "attestednodes", "-A").splitlines()
    for column in ("NODE", "CLUSTER", "MACHINE", "ATTESTED AGO", "CERTIFICATE UNTIL"):
        assert column in header
    assert any(node.name in row for row in rows)


def test_second_call_is_answered_from_the_cache(machines: Machines) -> None:
    node = machines.registered()
    first = node.call()
    assert first.credential == node.call().credential
    assert len(csrs.of_node(node)) == 2


def test_output_is_exactly_one_line_of_json(machines: Machines) -> None:
    call = machines.registered().call()
    assert call.output.count("\n") == 1
    assert call.output.endswith("\n")
    assert not call.complaint
    assert set(json.loads(call.output)) == {"kind", "apiVersion", "status"}


def test_renewal_is_attested_with_the_current_certificate(machines: Machines) -> None:
    node = machines.registered()
    first = node.call().certificate
    renewed = node.call("renew", "--kubeconfig", str(node.kubeconfig()))
    assert renewed.status == 0, renewed.complaint
    assert node.call().certificate != first
    requesters = Counter(csr["spec"]["username"] for csr in csrs.of_node(node))
    assert requesters.pop(f"system:node:{node.name}") == 2
    [(bootstrapper, filed)] = requesters.items()
    assert bootstrapper.startswith("system:bootstrap:")
    assert filed == 2


def test_twenty_parallel_calls_file_one_exchange(machines: Machines) -> None:
    node = machines.registered()
    calls = [node.start() for _ in range(20)]
    with ThreadPoolExecutor(len(calls)) as pool:
        ended = list(pool.map(finished, calls))
    assert {call.status for call in ended} == {0}, [call.complaint for call in ended]
    assert len({call.certificate for call in ended}) == 1
    assert len(csrs.of_node(node)) == 2


def test_clusters_with_equal_names_are_separate(machines: Machines, fleet: Fleet) -> None:
    name = machines.power_on().name
    first, second = (machines.registered(tenant, name) for tenant in fleet.tenants)
    assert first.call().status == 0
    assert second.call().status == 0
    for node in (first, second):
        claimed = csrs.claim(node, fleet.management.admin)
        assert claimed["endorsementKey"] in next(iter(node.registration().values()))
        assert whoami(node) == f"system:node:{name}"


def test_machine_that_appears_late_is_waited_for(machines: Machines, fleet: Fleet) -> None:
    node = machines.power_on()
    call = node.start()
    workload = fleet.first.workload.admin
    wait_until(lambda: bool(csrs.offers(node)), what="the offer is filed")
    [offer] = csrs.offers(node)
    csrs.waiting_for(workload, offer["metadata"]["name"], "MachineNotFound")
    machines.register(node)
    assert finished(call).status == 0


def test_node_waits_for_a_late_bootstrap(machines: Machines, fleet: Fleet) -> None:
    node = machines.power_on()
    machines.register(node, Machine(node.name, bootstrap_ready=False))
    call = node.start()
    wait_until(lambda: bool(csrs.offers(node)), what="the offer is filed")
    [offer] = csrs.offers(node)
    workload = fleet.first.workload.admin
    csrs.waiting_for(workload, offer["metadata"]["name"], "BootstrapNotReady")
    machine = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{fleet.first.namespace}/machines"
    fleet.management.admin.patch(
        f"{machine}/{node.name}/status",
        {"status": {"initialization": {"bootstrapDataSecretCreated": True}}},
    )
    assert finished(call).status == 0


@pytest.mark.parametrize("where", ["machine", "infrastructure"])
def test_record_on_either_object_is_accepted(machines: Machines, fleet: Fleet, where: str) -> None:
    node = machines.power_on()
    record = node.registration()
    machine = (
        Machine(node.name, annotations=record)
        if where == "machine"
        else Machine(node.name, infrastructure_annotations=record)
    )
    fleet.add_machine(node.tenant, machine)
    assert node.call().status == 0


def test_verdicts_are_logged_as_json(machines: Machines, signer: Signer) -> None:
    node = machines.registered()
    assert node.call().status == 0
    [issued] = audit_log.logged(signer, node, "issued")
    [answer] = csrs.answers(node)
    assert issued["csr"] == answer["metadata"]["name"]
    assert issued["node"] == issued["machine"] == node.name
    assert issued["pcrs"]["sha256"]["0"] == node.tpm.pcrs["sha256"][0].hex()
    assert "resetCount" in issued


def test_doctor_examines_a_node_before_its_join_and_with_a_failed_tpm(machines: Machines) -> None:
    """It checked nothing without a kubeconfig, and named only the driver of the TPM."""
    node = machines.power_on()

    def doctor(tcti: str, status: int) -> dict[str, tuple[str, str]]:
        flags = {
            "kubeconfig": node.directory / "kubelet.conf",
            "bootstrap-kubeconfig": node.bootstrap_kubeconfig,
            "state-dir": node.state,
            "node-name": node.name,
            "provider-id": node.provider_id,
            "tcti": tcti,
            "output": "json",
        }
        done = subprocess.run(
            [PLUGIN, "doctor", *(f"--{name}={value}" for name, value in flags.items())],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (status, "")
        findings = json.loads(done.stdout)["items"]
        return {each["check"]: (each["message"], each["nextStep"]) for each in findings}

    found = doctor(node.tpm.tcti, 0)
    assert [check for check, (_, remedy) in found.items() if remedy] == []
    assert "may create CSRs" in found["API server"][0]
    with TpmRelay(node.tpm) as relay:
        relay.on(None, refuse(RC_FAILURE), times=1000)
        detail, remedy = doctor(relay.tcti, 1)["TPM"]
    assert detail.startswith("TpmInFailureMode: ")
    assert "kubectl attestation replace" in remedy
