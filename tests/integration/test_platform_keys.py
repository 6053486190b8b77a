"""A node joins with an endorsement key that only the platform of its Machine knows."""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.fakes import ec2
from tests.fakes.api_server import FakeApiServer, api_server
from tests.fakes.ec2 import FakeEc2
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.harness.objects import Machine
from tests.harness.signer import Signer, of_cluster
from tests.harness.tpm import EndorsementKey
from tests.integration import csrs
from tests.integration.scripted_node import Script


@dataclass(frozen=True, slots=True)
class Cloud:
    """An account of the platform."""

    ec2: FakeEc2
    server: FakeApiServer

    def launch(self, node: Node) -> None:
        """Let the platform know the TPM of the node's instance."""
        public = node.tpm.endorsement_public_key(EndorsementKey.RSA_2048)
        der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        self.ec2.keys[instance_of(node), "rsa-2048"] = der


@pytest.fixture(scope="module")
def cloud(
    signer: Signer, fleet: Fleet, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cloud]:
    """Use a policy that names the platform for the first Cluster."""
    directory = tmp_path_factory.mktemp("cloud")
    service = FakeEc2()
    with api_server(service.handle, directory) as server:
        platform = {
            "type": "aws",
            "credentialsFile": str(credentials(directory, server)),
            "locations": ["eu-central-1"],
        }
        policy = of_cluster(fleet.first, endorsementKey={"platform": platform})
        with signer.with_policies(policy):
            yield Cloud(service, server)


def credentials(directory: Path, server: FakeApiServer) -> Path:
    """Write the account's credentials."""
    bundle, file = directory / "authority.crt", directory / "credentials"
    bundle.write_bytes(server.authority.pair.certificate)
    lines = (
        "[default]",
        f"aws_access_key_id = {ec2.ACCESS_KEY}",
        f"aws_secret_access_key = {ec2.SECRET_KEY}",
        f"endpoint_url = {server.url}",
        f"ca_bundle = {bundle}",
    )
    file.write_text("\n".join(lines), encoding="utf-8")
    return file


def instance_of(node: Node) -> str:
    return node.provider_id.rpartition("/")[2]


@pytest.fixture
def node(machines: Machines, fleet: Fleet) -> Node:
    """Make a machine without a registered key."""
    return unregistered(machines, fleet, "eu-central-1a")


def unregistered(machines: Machines, fleet: Fleet, zone: str) -> Node:
    node = machines.power_on()
    node.provider_id = f"aws:///{zone}/i-{secrets.token_hex(8)}0"
    fleet.add_machine(node.tenant, Machine(node.name, provider_id=node.provider_id))
    return node


def test_node_joins_with_the_key_that_the_platform_knows(
    cloud: Cloud, node: Node, fleet: Fleet
) -> None:
    cloud.launch(node)
    assert node.call().status == 0
    assert csrs.held(node, fleet.management.admin)["basis"] == "Registered"


@pytest.mark.timeout(240)
def test_node_waits_while_the_platform_does_not_answer(
    cloud: Cloud, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.launch(node)
    with monkeypatch.context() as outage:
        outage.setattr(
            cloud.server, "handler", lambda a: ec2.give_error(a, 503, "RequestLimitExceeded")
        )
        script = Script(node)
        script.waiting_for("PlatformUnavailable")
    assert script.attest() == {"Approved": "Attested"}


def test_provider_id_outside_of_the_allowed_regions_is_not_queried(
    cloud: Cloud, machines: Machines, fleet: Fleet
) -> None:
    node = unregistered(machines, fleet, "us-east-1a")
    cloud.launch(node)
    Script(node).waiting_for("PlatformLocationNotAllowed")
    assert not [r for r in cloud.server.requests if instance_of(node).encode() in r.content]
