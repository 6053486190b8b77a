"""The certificate with which a node files a CSR: what the API server writes, and K4."""

import base64
import secrets
import shutil
from pathlib import Path

from common.names import CLIENT_SIGNER
from common.requests.csr import build_pkcs10, encode_request
from tests.harness.client import Client, Object
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.pki import ec_key
from tests.harness.process import wait_until
from tests.harness.signer import Signer, of_cluster
from tests.integration import csrs
from tests.integration.credentials import credential_id, joined, renewed, with_stolen_authority
from tests.integration.csrs import CSRS
from tests.integration.machine_events import events
from tests.integration.scripted_node import Script

CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"


REASON = "RequesterCredentialUnknown"


def alarms(signer: Signer, *names: str) -> list[str]:
    """Return the reasons of the alarms about these CSRs."""
    lines = [line for name in names for line in signer.verdicts(name)]
    return [line["reason"] for line in lines if line.get("alarm")]


def file_request(client: Client, **extra: list[str]) -> Object:
    """File a CSR of our signer, and return it as the API server stored it."""
    request = build_pkcs10(ec_key(), node_name="credential", provider_id="metal://credential")
    return client.create(
        CSRS,
        {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": f"credential-{secrets.token_hex(8)}"},
            "spec": {
                "request": base64.b64encode(encode_request(request, b"{}")).decode(),
                "signerName": CLIENT_SIGNER,
                "usages": ["client auth", "digital signature"],
                "extra": extra,
            },
        },
    )


def test_csr_has_the_digest_of_the_certificate_that_filed_it(fleet: Fleet) -> None:
    """In lower-case hex, over the DER form, and only once, whatever the requester writes itself."""
    node = fleet.first.workload.client("system:node:credential", "system:nodes")
    assert node.certificate is not None
    expected = credential_id(node.certificate[0].read_bytes())
    spec = file_request(node, **{CREDENTIAL_ID: ["X509SHA256=forged"], "other": ["x"]})["spec"]
    assert spec["extra"] == {CREDENTIAL_ID: [expected]}


def test_csr_of_a_bootstrap_token_has_no_credential_id(fleet: Fleet) -> None:
    workload = fleet.first.workload
    spec = file_request(workload.with_token(workload.bootstrap_token()))["spec"]
    assert CREDENTIAL_ID not in spec.get("extra", {})


def test_certificates_of_a_node_are_recorded_and_end_with_its_renewals(
    fleet: Fleet, machines: Machines, signer: Signer
) -> None:
    node, first = joined(machines)
    assert csrs.claim(node, fleet.management.admin)["credentialIDs"] == [first]
    second = renewed(node)
    assert csrs.claim(node, fleet.management.admin)["credentialIDs"] == [first, second]
    third = renewed(node)
    assert csrs.claim(node, fleet.management.admin)["credentialIDs"] == [second, third]
    assert alarms(signer, *(csr["metadata"]["name"] for csr in csrs.of_node(node))) == []


def test_certificate_of_a_stolen_authority_raises_an_alarm(
    fleet: Fleet, machines: Machines, signer: Signer
) -> None:
    """Its owner does not have the TPM, so it gets no further than an offer."""
    node, _ = joined(machines)
    script = Script(node, client=with_stolen_authority(node))
    script.challenge()
    wait_until(lambda: alarms(signer, script.offer) == [REASON], what="the alarm")
    wait_until(lambda: ("Warning", REASON) in events(fleet, node), what="the Event on the Machine")


def test_certificate_of_a_stolen_authority_is_denied_by_policy(
    fleet: Fleet, machines: Machines, signer: Signer
) -> None:
    """Even with the TPM of the node. The node itself renews."""
    policy = of_cluster(fleet.first, renewals={"unknownCredential": "Deny"})
    with signer.with_policies(policy):
        node, first = joined(machines)
        script = Script(node, client=with_stolen_authority(node))
        assert script.attest() == {"Denied": REASON}
        assert csrs.claim(node, fleet.management.admin)["credentialIDs"] == [first]
        second = renewed(node)
        assert csrs.claim(node, fleet.management.admin)["credentialIDs"] == [first, second]


def test_machine_restored_from_a_snapshot_comes_back_with_its_bootstrap_credential(
    fleet: Fleet, machines: Machines, signer: Signer, tmp_path: Path
) -> None:
    """The signer denies the certificate of the snapshot for as long as it is valid."""
    policy = of_cluster(fleet.first, renewals={"unknownCredential": "Deny"})
    with signer.with_policies(policy):
        node, _ = joined(machines)
        snapshot = shutil.copytree(node.state, tmp_path / "snapshot")
        renewed(node)
        third = renewed(node)
        shutil.rmtree(node.state)
        shutil.copytree(snapshot, node.state)
        restored = node.call("renew", "--kubeconfig", str(node.kubeconfig()))
        assert restored.status == 0, restored.complaint
        assert REASON in restored.complaint
        recorded = csrs.claim(node, fleet.management.admin)["credentialIDs"]
        assert recorded[-1] not in {*recorded[:-1], third}
