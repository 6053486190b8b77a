"""endorsement-key: this machine's endorsement key, as the signer's operator registers it."""

from typing import Any

import yaml
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from authenticator.config.settings import Settings
from authenticator.errors import ConfigurationInvalid, TpmFailed
from authenticator.tpm.device import DeviceEndorsementKey
from common.names import API_GROUP, API_VERSION, ENDORSEMENT_KEY_ANNOTATION
from common.public_keys import InvalidKey, public_key_from_area, spki_sha256
from common.tpm.public import PublicArea
from common.tpm.reader import StructureMalformed

Document = dict[str, Any]


def collect(found: DeviceEndorsementKey) -> Document:
    """Return the key as PEM, its digest, and how many certificates came with it."""
    try:
        key = public_key_from_area(PublicArea.from_tpm2b(found.public))
        digest = spki_sha256(key).hex()
    except (StructureMalformed, InvalidKey) as error:
        raise TpmFailed("the TPM's endorsement key cannot be read") from error
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    return {"publicKey": pem, "sha256": digest, "certificates": len(found.certificates)}


def format_text(document: Document) -> str:
    """Write the PEM, after a comment with the annotation's shortest value."""
    return f"# {ENDORSEMENT_KEY_ANNOTATION}: sha256:{document['sha256']}\n{document['publicKey']}"


def manifest(document: Document, settings: Settings, cluster: str | None) -> Document:
    """Return an EndorsementKey to create on the management cluster.

    With the Cluster's `NAMESPACE/NAME` it is registered for this machine; without, an operator
    has to add for what. Raises ConfigurationInvalid.
    """
    spec: Document = {"publicKey": document["publicKey"]}
    if cluster is not None:
        namespace, slash, name = cluster.partition("/")
        if not slash or not namespace or not name:
            raise ConfigurationInvalid("--cluster is not NAMESPACE/NAME")
        spec["registeredFor"] = [
            {
                "clusterNamespace": namespace,
                "clusterName": name,
                "providerID": settings.required_provider_id(),
                "nodeName": settings.node_name,
            }
        ]
    return {
        "apiVersion": f"{API_GROUP}/{API_VERSION}",
        "kind": "EndorsementKey",
        "metadata": {"name": document["sha256"]},
        "spec": spec,
    }


def to_yaml(document: Document) -> str:
    """Write an object as YAML."""
    text: str = yaml.safe_dump(document, sort_keys=False)
    return text
