"""The commands of the documentation, run as they are printed.

An operator's commands run with kubectl and the kubeconfigs of the harness. A node's commands run
with its settings. The names of Cluster and node are in variables, as in the pages.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import pytest
import yaml

from tests.builders.certificates import authority
from tests.harness.documentation import blocks, run_commands
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.management import NAMESPACE as SIGNER_NAMESPACE
from tests.harness.node import Node
from tests.harness.process import wait_until
from tests.harness.programs import PLUGIN, SIGNER
from tests.harness.signer import opt_in
from tests.integration import csrs

pytestmark = pytest.mark.usefixtures("signer")

MARKERS = {"run", "run on a node"}
STORIES = {
    page: [block for block in of_page if block.marker in MARKERS]
    for page, of_page in groupby(blocks(), key=lambda block: block.page)
}
QUICK_START = "docs/quick-start.md"
BEFORE_JOINING = {QUICK_START, "docs/tpm-roots.md"}
"""Pages for a node that is not registered. The others suppose one that has joined."""
KINDS = {"EndorsementKey", "ClusterRoleBinding", "KubeadmConfigTemplate"}
DOCUMENTS = [
    pytest.param(document, id=f"{block}-{number}")
    for block in blocks()
    if block.language == "yaml"
    for number, document in enumerate(yaml.safe_load_all(block.text))
    if document.get("kind") in KINDS
]
COMMAND_SECONDS = 90
CHALLENGE_KEYS = "node-attestation-challenge-keys"
SIGNER_SECRETS = f"/api/v1/namespaces/{SIGNER_NAMESPACE}/secrets"


@dataclass(frozen=True, slots=True)
class Workstation:
    """A directory with the operator's files, and the programs of operator and node."""

    directory: Path
    environment: dict[str, str]

    def run(self, script: str) -> str:
        """Run commands in bash, which stops at the first failure; return their output."""
        return run_commands(script, self.directory, self.environment, seconds=COMMAND_SECONDS)


@pytest.fixture
def node(machines: Machines, fleet: Fleet) -> Node:
    """Return a machine with a Machine, which is not registered and has not joined."""
    return machines.known(fleet.first)


@pytest.fixture
def keys(fleet: Fleet) -> Iterator[Mapping[str, str]]:
    """Create the EndorsementKeys that the pages name by variables."""
    names = {"KEY": "0b" * 32, "OLD": "0c" * 32}
    for name in names.values():
        body = {
            "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
            "kind": "EndorsementKey",
            "metadata": {"name": name},
            "spec": {},
        }
        fleet.management.admin.create(csrs.ENDORSEMENT_KEYS, body)
    yield names
    for name in names.values():
        fleet.management.admin.delete(f"{csrs.ENDORSEMENT_KEYS}/{name}")


@pytest.fixture
def workstation(
    fleet: Fleet, node: Node, keys: Mapping[str, str], tmp_path: Path
) -> Iterator[Workstation]:
    """Provide what the pages suppose: kubeconfigs, programs, names, and files made before."""
    directory, programs = tmp_path, tmp_path / "bin"
    programs.mkdir()
    (programs / "kubectl").symlink_to(fleet.management.assets / "kubectl")
    (programs / "node-attestation-signer").symlink_to(SIGNER)
    plugin = programs / PLUGIN.name
    plugin.write_text(_plugin_of(node), encoding="utf-8")
    plugin.chmod(0o755)
    (directory / "workload.conf").write_bytes(node.tenant.workload.admin_config.read_bytes())
    (directory / "ifx.pem").write_bytes(authority("A Vendor Root CA").der)
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(directory),
        "KUBECONFIG": str(fleet.management.admin_config),
        "NAMESPACE": node.tenant.namespace,
        "CLUSTER": node.tenant.name,
        "ATTESTED_NODE": f"{node.name}.{node.tenant.name}",
        "INFRASTRUCTURE": "testmachines,testclusters",
        "KUBELET_AUTHENTICATOR_JOIN_ARGS": "",  # the program on the PATH has the flags
        **keys,
    }
    yield Workstation(directory, environment)
    opt_in(fleet, node.tenant)


def _plugin_of(node: Node) -> str:
    """Return a script that runs the plugin with the names, the files and the TPM of a node.

    On a real node they are where the plugin looks for them. `doctor` finds problems here, since
    this machine runs no kubelet.
    """
    values = {
        "node-name": node.name,
        "provider-id": node.provider_id,
        "state-dir": node.state,
        "bootstrap-kubeconfig": node.bootstrap_kubeconfig,
        "tcti": node.tpm.tcti,
    }
    flags = " ".join(f"'--{flag}={value}'" for flag, value in values.items())
    return f"""#!/bin/sh
"{PLUGIN}" "$@" {flags} '--kubeconfig={node.directory / "joined.conf"}'
status=$?
[ "$1 $status" = "doctor 1" ] || exit $status
"""


@pytest.mark.parametrize("page", [page for page, marked in STORIES.items() if marked])
def test_commands_of_the_page_work_in_their_order(
    page: str, workstation: Workstation, node: Node, fleet: Fleet
) -> None:
    admin = fleet.management.admin
    # docs/operate/signer.md deletes them, and the signer creates new ones within a minute.
    wait_until(
        lambda: CHALLENGE_KEYS in {each["metadata"]["name"] for each in admin.list(SIGNER_SECRETS)},
        what="the challenge keys exist",
        seconds=90,
    )
    if page not in BEFORE_JOINING:
        path = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{node.tenant.namespace}/machines"
        annotations = {"metadata": {"annotations": node.registration()}}
        admin.patch(f"{path}/{node.name}", annotations)
        workstation.run("kubelet-authenticator-tpm join")
        [answer] = csrs.answers(node)
        workstation.environment["CSR"] = answer["metadata"]["name"]
    shown = [workstation.run(block.script) for block in STORIES[page]]
    if page == QUICK_START:
        assert any(node.name in output for output in shown), "an AttestedNode is shown at the end"


def test_registered_node_renews_after_its_claims_are_lost(machines: Machines, fleet: Fleet) -> None:
    """docs/operate/recovery.md: a restore without claims needs no operator."""
    node, management = machines.registered(fleet.first), fleet.management.admin
    assert node.call().status == 0
    key = csrs.claim(node, management)["endorsementKey"]
    management.delete(f"{csrs.ENDORSEMENT_KEYS}/{key}")
    claim = f"{node.name}.{node.tenant.name}"
    management.delete(f"{csrs.ATTESTED_NODES.format(node.tenant.namespace)}/{claim}")
    assert node.call("renew", "--kubeconfig", str(node.kubeconfig())).status == 0
    assert csrs.claim(node, management)["endorsementKey"] == key
    assert csrs.held(node, management)["nodeName"] == node.name


@pytest.mark.parametrize("document", DOCUMENTS)
def test_documented_objects_are_accepted_by_an_api_server(
    document: Mapping[str, object], fleet: Fleet
) -> None:
    cluster = fleet.first.workload if document["kind"] == "ClusterRoleBinding" else fleet.management
    cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(document))
