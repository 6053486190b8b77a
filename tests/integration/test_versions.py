"""Nodes that speak another version (P6): told what is spoken here, and let in by it."""

import json

import pytest

from common import evidence
from common.names import SUPPORTED_VERSIONS_ANNOTATION
from tests.harness.machines import Machines
from tests.harness.node import Node
from tests.integration.scripted_node import Script

pytestmark = pytest.mark.usefixtures("signer")


class OtherVersion(Script):
    """A node that speaks another version until it is told better."""

    def __init__(self, node: Node, version: str) -> None:
        self.version = version
        super().__init__(node)

    def put(self, name: str, data: bytes) -> str:
        """File data as that version might have it: with more than the name of it changed."""
        if self.version != "v1":
            document = json.loads(data) | {"version": self.version, "more": ["than is known"]}
            data = json.dumps(document).encode()
        return super().put(name, data)

    def start_over(self, version: str) -> None:
        """File the offer again, in a version that was told."""
        self.version = version
        self.offer = self.put("", evidence.encode_attestation_data(self.offered))


@pytest.mark.parametrize("version", ["v2", "v0"], ids=["the next", "a retired one"])
def test_another_version_is_told_and_starts_over(machines: Machines, version: str) -> None:
    script = OtherVersion(machines.registered(), version)
    assert script.refusal() == "UnsupportedVersion"
    told = script.annotation(SUPPORTED_VERSIONS_ANNOTATION)
    assert told == "v1"
    script.start_over(told)
    assert script.attest() == {"Approved": "Attested"}
