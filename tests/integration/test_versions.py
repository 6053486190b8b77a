"""Nodes of another version (P6): the signer announces its versions, and the node starts over."""

import json

import pytest

from common import evidence
from common.names import SUPPORTED_VERSIONS_ANNOTATION
from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.integration.scripted_node import Script

pytestmark = pytest.mark.usefixtures("signer")


class OtherVersion(Script):
    """A node that uses another version until the signer announces its own."""

    def __init__(self, node: Node, version: str) -> None:
        self.version = version
        super().__init__(node)

    def put(self, name: str, data: bytes) -> str:
        """File data as that version might encode it: more than the version's name differs."""
        if self.version != "v1":
            document = json.loads(data) | {"version": self.version, "more": ["than is known"]}
            data = json.dumps(document).encode()
        return super().put(name, data)

    def start_over(self, version: str) -> None:
        """File the offer again, in an announced version."""
        self.version = version
        self.offer = self.put("", evidence.encode_attestation_data(self.offered))


@pytest.mark.parametrize("version", ["v2", "v0"], ids=["the next", "a retired one"])
def test_node_of_another_version_starts_over_in_the_announced_one(
    machines: Machines, version: str
) -> None:
    script = OtherVersion(machines.registered(), version)
    assert script.refusal() == "UnsupportedVersion"
    announced = script.annotation(SUPPORTED_VERSIONS_ANNOTATION)
    assert announced == "v1"
    script.start_over(announced)
    assert script.attest() == {"Approved": "Attested"}
