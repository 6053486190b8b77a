"""The insecure signer: one certificate for each Machine without a TPM, and nothing else.

It serves the second cluster, with the permissions of packaging/signer/insecure, while the attested
signer serves the first.
"""

import base64
import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from tests.harness import kubeconfig, process
from tests.harness.client import Client, Object
from tests.harness.fleet import Fleet, WorkloadTenant
from tests.harness.insecure_signer import SIGNER_NAME, InsecureSigner, opted_in
from tests.harness.objects import Machine
from tests.harness.process import wait_until
from tests.harness.signer import Signer
from tests.harness.workload import PACKAGING
from tests.integration import csrs, plain_requests
from tests.integration.kubeconfigs import administrators_kubeconfig

SCRIPT = PACKAGING.parent / "node/insecure/insecure-kubelet-join"
MANIFEST = PACKAGING / "insecure/insecure-signer.yaml"
ACCOUNT = "node-attestation-insecure-signer"
MACHINES = "/apis/cluster.x-k8s.io/v1beta2/namespaces/{}/machines"


@pytest.fixture(scope="module")
def tenant(fleet: Fleet, signer: Signer) -> Iterator[WorkloadTenant]:
    """Let the second Cluster name the insecure signer alone, and give it the usual kubeconfig."""
    assert signer.pid
    tenant = fleet.second
    with opted_in(fleet, tenant), administrators_kubeconfig(fleet):
        yield tenant


@pytest.fixture(scope="module")
def least_privilege(fleet: Fleet, tenant: WorkloadTenant) -> str:
    """Install the packaging's manifest, and return a kubeconfig of its ServiceAccount."""
    text = MANIFEST.read_text(encoding="utf-8").replace("insecure-clusters", tenant.namespace)
    text = text.replace("dev-", f"{tenant.name}-").replace("[dev]", f"[{tenant.name}]")
    management = fleet.management
    management.kubectl("apply", "--server-side", "-f", "-", stdin=text)
    path = f"/api/v1/namespaces/{tenant.namespace}/serviceaccounts/{ACCOUNT}/token"
    token = management.admin.create(path, {"spec": {"expirationSeconds": 3600}})["status"]["token"]
    authority = management.authority.pair.certificate
    return kubeconfig.with_token(management.url, authority, token, user=ACCOUNT)


@pytest.fixture(scope="module")
def insecure(
    tenant: WorkloadTenant, least_privilege: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[InsecureSigner]:
    directory = tmp_path_factory.mktemp("insecure")
    with InsecureSigner(directory, least_privilege, (tenant,)) as running:
        yield running


@pytest.fixture
def name() -> str:
    return f"node-{secrets.token_hex(4)}"


@pytest.fixture
def bootstrapper(tenant: WorkloadTenant) -> Client:
    return tenant.workload.with_token(tenant.workload.bootstrap_token())


def file(client: Client, node: str, **spec: object) -> str:
    """File a plain request for a node's name."""
    pem = base64.b64decode(plain_requests.request(node))
    spec.setdefault("signerName", SIGNER_NAME)
    return csrs.file(client, pem, name=csrs.new_name(), **spec)


def certified(client: Client, csr: str) -> bytes:
    """Wait for the certificate of a request."""
    wait_until(lambda: bool(csrs.certificate(client, csr)), what=f"a certificate for {csr}")
    return csrs.certificate(client, csr)


def start_join(
    tenant: WorkloadTenant, fleet: Fleet, node: str, directory: Path
) -> subprocess.Popen[bytes]:
    """Start the script of the node, with the file that kubeadm writes before."""
    token = tenant.workload.bootstrap_token()
    bootstrap = directory / "bootstrap-kubelet.conf"
    bootstrap.write_text(tenant.workload.bootstrap_kubeconfig(token), encoding="utf-8")
    path = f"{fleet.management.assets}:{os.environ['PATH']}"
    return process.start(
        [SCRIPT, node, directory], log=directory / "join.log", env={"PATH": path}, cwd=directory
    )


def join(tenant: WorkloadTenant, fleet: Fleet, node: str, directory: Path) -> Path:
    """Run the script of the node; return the kubeconfig that it writes."""
    script = start_join(tenant, fleet, node, directory)
    assert script.wait(60) == 0, process.tail(directory / "join.log")
    return directory / "kubelet.conf"


def requests_for(tenant: WorkloadTenant, node: str) -> list[str]:
    """Return the names of the requests to the insecure signer for a node's name."""
    return [
        csr["metadata"]["name"]
        for csr in tenant.workload.admin.list(csrs.CSRS)
        if csr["spec"]["signerName"] == SIGNER_NAME and csrs.subject(csr) == f"system:node:{node}"
    ]


def events(fleet: Fleet, tenant: WorkloadTenant, kind: str, name: str) -> list[Object]:
    path = f"/api/v1/namespaces/{tenant.namespace}/events"
    selector = f"involvedObject.kind={kind},involvedObject.name={name},reason=NothingAttested"
    return fleet.management.admin.list(path, fieldSelector=selector)


def test_node_without_a_tpm_joins(
    fleet: Fleet, tenant: WorkloadTenant, insecure: InsecureSigner, name: str, tmp_path: Path
) -> None:
    fleet.add_machine(tenant, Machine(name))
    config = join(tenant, fleet, name, tmp_path)
    who = yaml.safe_load(tenant.workload.kubectl("auth", "whoami", "-o", "yaml", config=config))
    assert who["status"]["userInfo"]["username"] == f"system:node:{name}"
    assert "system:nodes" in who["status"]["userInfo"]["groups"]
    [user] = yaml.safe_load(config.read_text(encoding="utf-8"))["users"]
    assert user["user"].keys() == {"client-certificate-data", "client-key-data"}
    assert config.stat().st_mode & 0o777 == 0o600
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"kubelet.conf", "bootstrap-kubelet.conf", "join.log"}
    certificate = x509.load_pem_x509_certificate(
        base64.b64decode(user["user"]["client-certificate-data"])
    )
    authority = x509.load_pem_x509_certificate(tenant.workload.authority.pair.certificate)
    assert certificate.not_valid_after_utc == authority.not_valid_after_utc
    [on_machine] = events(fleet, tenant, "Machine", name)
    [on_cluster] = events(fleet, tenant, "Cluster", tenant.name)
    assert {on_machine["type"], on_cluster["type"]} == {"Warning"}
    assert "nothing was attested" in on_machine["message"]
    wait_until(
        lambda: insecure.has_logged("INSECURE: certificate issued", name, '"level": "warning"'),
        what="the line that follows the certificate",
    )
    again = subprocess.run(
        [SCRIPT, name, tmp_path], check=True, capture_output=True, text=True, timeout=60
    )
    assert "exists: nothing is done" in again.stderr


@pytest.mark.usefixtures("insecure")
def test_join_that_is_killed_continues_with_its_request(
    fleet: Fleet, tenant: WorkloadTenant, name: str, tmp_path: Path
) -> None:
    """The Machine gets one certificate only: a request with another key would be denied."""
    script = start_join(tenant, fleet, name, tmp_path)
    wait_until(lambda: bool(requests_for(tenant, name)), what="the request of the script")
    process.kill(script)
    fleet.add_machine(tenant, Machine(name))
    [request] = requests_for(tenant, name)
    certified(tenant.workload.admin, request)
    config = join(tenant, fleet, name, tmp_path)
    assert requests_for(tenant, name) == [request]
    assert name in tenant.workload.kubectl("auth", "whoami", config=config)


@pytest.mark.usefixtures("insecure")
def test_renewal_by_the_node_is_denied(
    fleet: Fleet, tenant: WorkloadTenant, name: str, bootstrapper: Client
) -> None:
    fleet.add_machine(tenant, Machine(name))
    node = tenant.workload.client(f"system:node:{name}", "system:nodes")
    renewal = file(node, name)
    assert csrs.decided(node, renewal) == {"Denied": "RequesterNotAllowed"}
    certified(bootstrapper, file(bootstrapper, name))


def test_requests_of_the_other_signer_are_not_touched(
    fleet: Fleet, tenant: WorkloadTenant, signer: Signer, tmp_path: Path
) -> None:
    """Two insecure replicas with all rights run, and the attested signer."""
    attested = fleet.first
    stranger, victim = (f"node-{secrets.token_hex(4)}" for _ in range(2))
    fleet.add_machine(attested, Machine(stranger))
    fleet.add_machine(tenant, Machine(victim))
    of_first = attested.workload.with_token(attested.workload.bootstrap_token())
    of_second = tenant.workload.with_token(tenant.workload.bootstrap_token())
    insecure_request = file(of_first, stranger)
    attested_requests = [
        file(of_second, victim, signerName=signer_name)
        for signer_name in (
            plain_requests.CLIENT_SIGNER,
            "kubernetes.io/kube-apiserver-client-kubelet",
        )
    ]
    config = fleet.management.admin_config.read_text(encoding="utf-8")
    with ExitStack() as stack:
        for number in range(2):
            replica = InsecureSigner(tmp_path / str(number), config, (attested, tenant))
            stack.enter_context(replica)
            wait_until(
                lambda replica=replica: replica.has_logged("NotOptedIn", attested.namespace),  # type: ignore[misc]
                what="the insecure signer does not serve the attested Cluster",
            )
        certified(of_second, file(of_second, victim))
    assert csrs.conditions(of_first, insecure_request) == {}
    assert [csrs.conditions(of_second, request) for request in attested_requests] == [{}, {}]
    assert signer.verdicts(insecure_request) == []
