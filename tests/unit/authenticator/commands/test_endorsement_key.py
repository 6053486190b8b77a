"""endorsement-key: an operator can use its output without changes."""

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from authenticator.commands import endorsement_key
from authenticator.config.command_line import parse_arguments
from authenticator.config.settings import resolve
from authenticator.errors import ConfigurationInvalid, TpmFailed
from authenticator.tpm.device import DeviceEndorsementKey
from common.formats.yaml_text import to_yaml
from signer.inventory.cluster_api.key_annotation import read_key_annotation
from tests.fakes.tpm import FakeTpm
from tests.harness.pki import Authority, ec_key

CERTIFICATE = Authority.make("vendor", ec_key()).pair.certificate


def test_text_is_a_value_of_the_annotation() -> None:
    document = endorsement_key.collect(FakeTpm().endorsement_key())
    text = endorsement_key.format_text(document)
    annotation = read_key_annotation(text, "machine")
    assert annotation.error is None
    assert [key.spki_sha256.hex() for key in annotation.keys] == [document["sha256"]]


def test_certificate_is_printed_without_other_bytes_of_its_nv_index() -> None:
    der = x509.load_pem_x509_certificate(CERTIFICATE).public_bytes(Encoding.DER)
    contents = [b"\x10\x01\x00\x03\x36" + der + b"\xff" * 7, b"no certificate"]
    [printed] = endorsement_key.collect(FakeTpm(certificates=contents).endorsement_key())[
        "certificates"
    ]
    assert printed.encode() == CERTIFICATE


def test_manifest_registers_the_machine_for_its_cluster() -> None:
    document = endorsement_key.collect(FakeTpm().endorsement_key())
    settings = resolve({"nodeName": "worker-1", "providerID": "test:///1"}, {}, "x")
    manifest = endorsement_key.manifest(document, settings, "ns/c")
    assert yaml.safe_load(to_yaml(manifest)) == {
        "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
        "kind": "EndorsementKey",
        "metadata": {"name": document["sha256"]},
        "spec": {
            "publicKey": document["publicKey"],
            "registeredFor": [
                {
                    "clusterNamespace": "ns",
                    "clusterName": "c",
                    "providerID": "test:///1",
                    "nodeName": "worker-1",
                }
            ],
        },
    }
    assert "registeredFor" not in endorsement_key.manifest(document, settings, None)["spec"]


@pytest.mark.parametrize("cluster", ["c", "/c", "ns/", "ns/c/d"])
def test_cluster_without_namespace_is_refused_before_the_tpm_is_opened(cluster: str) -> None:
    """A TPM may need minutes for its key. And `ns/c/d` was accepted."""
    with pytest.raises(ConfigurationInvalid, match="--cluster: must be NAMESPACE/NAME"):
        parse_arguments(["endorsement-key", "--manifest", "--cluster", cluster])


def test_unreadable_endorsement_key_is_a_failed_tpm() -> None:
    with pytest.raises(TpmFailed):
        endorsement_key.collect(DeviceEndorsementKey(public=b"\x00", certificates=()))
