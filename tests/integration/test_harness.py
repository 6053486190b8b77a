"""The harness of the other tests: its clusters behave like real clusters."""

import base64
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509

from tests.harness import clocks
from tests.harness.controlplane import ApiServer
from tests.harness.fleet import Fleet
from tests.harness.objects import Machine
from tests.harness.process import wait_until
from tests.harness.workload import MANIFESTS, WorkloadCluster
from tests.integration.plain_requests import CSRS, approve, csr

YEAR = 365 * 24 * 3600


def test_fleet_has_equal_names_and_different_identities(fleet: Fleet) -> None:
    machines = [fleet.add_machine(tenant, Machine("node-1")) for tenant in fleet.tenants]
    clusters = [
        fleet.management.admin.get(
            f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{tenant.namespace}/clusters/{tenant.name}"
        )
        for tenant in fleet.tenants
    ]
    for first, second in (machines, clusters):
        assert first["metadata"]["name"] == second["metadata"]["name"]
        assert first["metadata"]["uid"] != second["metadata"]["uid"]
    assert machines[0]["status"]["initialization"]["bootstrapDataSecretCreated"] is True
    assert fleet.first.workload.url != fleet.second.workload.url


def test_kubectl_works_everywhere(fleet: Fleet) -> None:
    for cluster in (fleet.management, *(tenant.workload for tenant in fleet.tenants)):
        assert "kube-system" in cluster.kubectl("get", "namespaces")


def test_apiserver_comes_back_with_its_data_on_the_same_port(assets: Path, tmp_path: Path) -> None:
    with ApiServer("restarted", tmp_path / "restarted", assets) as cluster:
        cluster.admin.create("/api/v1/namespaces", {"metadata": {"name": "kept"}})
        cluster.stop_apiserver()
        assert not cluster.admin.ready()
        cluster.start_apiserver()
        cluster.admin.get("/api/v1/namespaces/kept")


def test_bootstrap_bindings_are_kubeadms(assets: Path, tmp_path: Path) -> None:
    config = tmp_path / "kubeadm.yaml"
    config.write_text("apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\n")
    created_by_harness = {
        (document["kind"], document["metadata"]["name"]): document
        for file in MANIFESTS.glob("kubeadm-*.yaml")
        for document in yaml.safe_load_all(file.read_text())
    }
    with ApiServer("kubeadm", tmp_path / "kubeadm", assets) as cluster:
        admin = f"--kubeconfig={cluster.admin_config}"
        subprocess.run(
            [assets / "kubeadm", "init", "phase", "bootstrap-token", f"--config={config}", admin],
            check=True,
            env={"HOME": str(tmp_path), "PATH": os.defpath},
            capture_output=True,
        )
        kinds = "clusterrolebindings,clusterroles"
        theirs = json.loads(cluster.kubectl("get", kinds, "--output=json"))["items"]
    created_by_kubeadm = {
        (item["kind"], item["metadata"]["name"]): item
        for item in theirs
        if item["metadata"]["name"].startswith("kubeadm:")
        # Only newer versions have it: for the API server's requests to kubelets.
        and item["metadata"]["name"] != "kubeadm:apiserver-kubelet-client"
    }
    assert created_by_harness.keys() == created_by_kubeadm.keys()
    for identity, document in created_by_harness.items():
        for part in document.keys() - {"metadata"}:
            assert created_by_kubeadm[identity][part] == document[part], identity


def test_controllers_sign_serving_certificates(fleet: Fleet) -> None:
    workload = fleet.first.workload
    workload.start_controllers()
    node = workload.client("system:node:node-1", "system:nodes")
    serving = csr("serving", signer="kubernetes.io/kubelet-serving", usage="server auth")
    node.create(CSRS, serving)
    approve(workload.admin, "serving")

    def certificate() -> Any:  # noqa: ANN401 - absent or text
        return workload.admin.get(f"{CSRS}/serving")["status"].get("certificate")

    wait_until(lambda: certificate() is not None, what="the serving certificate is signed")
    issued = x509.load_pem_x509_certificate(base64.b64decode(certificate()))
    assert issued.issuer == workload.authority.certificate.subject


def test_cluster_api_joins_machine_and_node(fleet: Fleet) -> None:
    management, workload = fleet.management, fleet.second.workload
    management.create_namespace("managed")
    management.create_cluster("managed", "workload", endpoint=workload.url)
    management.store_kubeconfig("managed", "workload", workload.admin_config.read_text())
    management.create_machine("managed", "workload", Machine("joined"))
    node = {"metadata": {"name": "joined"}, "spec": {"providerID": "test://managed/joined"}}
    workload.admin.create("/api/v1/nodes", node)
    machine = "/apis/cluster.x-k8s.io/v1beta2/namespaces/managed/machines/joined"

    def joined() -> bool:
        status = management.admin.get(machine)["status"]
        return bool(status.get("nodeRef") == {"name": "joined"})

    with management.cluster_api("managed"):
        wait_until(joined, what="Cluster API has found the Node", seconds=120)


def processes_of(directory: Path) -> list[str]:
    """Return the command lines that contain a directory.

    Other processes may have any bytes in theirs.
    """
    lines = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if f"--data-dir={directory}" in command or f"={directory}/" in command:
            lines.append(command)
    return lines


def test_failure_leaves_no_process(assets: Path, tmp_path: Path) -> None:
    def fail() -> None:
        with WorkloadCluster("failing", tmp_path / "failing", assets):
            assert len(processes_of(tmp_path)) == 2
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert processes_of(tmp_path) == []


def test_interrupted_run_leaves_no_process(assets: Path, tmp_path: Path) -> None:
    script = (
        "import pathlib, signal, sys\n"
        "from tests.harness.fleet import Fleet\n"
        # A shell makes its background processes ignore the signal, and their children inherit that
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "with Fleet(*map(pathlib.Path, sys.argv[1:])):\n"
        "    print('up', flush=True)\n"
        "    signal.pause()\n"
    )
    runner = subprocess.Popen(
        [sys.executable, "-c", script, tmp_path / "fleet", assets],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert runner.stdout is not None
    try:
        with runner.stdout:
            assert runner.stdout.readline() == "up\n"
        assert len(processes_of(tmp_path)) == 6
        runner.send_signal(signal.SIGINT)
        runner.wait(60)
    finally:
        runner.kill()
    assert processes_of(tmp_path) == []


def test_program_with_a_wrong_clock_sleeps() -> None:
    """With libfaketime alone, each sleep fails with EINVAL."""
    program = "import time; time.sleep(0.001); print(int(time.time()))"
    result = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | clocks.shifted(-YEAR),
        check=True,
        capture_output=True,
        text=True,
    )
    assert abs(int(result.stdout) - (time.time() - YEAR)) < YEAR / 2
