"""endorsement-key: prints the endorsement key of this machine, which an operator registers."""

import logging
from base64 import b64encode
from collections.abc import Sequence
from textwrap import wrap
from typing import Any, Final

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from authenticator import wiring
from authenticator.clock import SystemClock
from authenticator.commands.run import EXIT_RETRY, CommandContext, watchdog
from authenticator.config.settings import Settings
from authenticator.errors import TpmFailed
from authenticator.model import Deadline
from authenticator.tpm.device import DeviceEndorsementKey
from authenticator.tpm.nv_certificates import certificate_der
from common.formats.yaml_text import to_yaml
from common.names import API_GROUP, API_VERSION
from common.public_keys import InvalidKey, public_key_from_area, spki_sha256
from common.tpm.public import PublicArea
from common.tpm.reader import StructureMalformed

TIMEOUT_SECONDS: Final = 90
_BEGIN_CERTIFICATE: Final = "-----BEGIN CERTIFICATE-----"
_END_CERTIFICATE: Final = "-----END CERTIFICATE-----\n"

Document = dict[str, Any]
_logger = logging.getLogger(__name__)


def run(context: CommandContext) -> int:
    """Print the key, its certificates, or a manifest. Raises leaves of the error tree."""
    context.require_valid_arguments()
    clock, arguments = SystemClock(), context.arguments
    deadline = Deadline(clock, TIMEOUT_SECONDS)
    with watchdog(deadline):
        settings = wiring.resolve_settings(arguments, context.exec_info, clock)
        with wiring.open_tpm(settings, deadline) as tpm:
            document = collect(tpm.endorsement_key())
        if arguments.cluster is not None:
            settings = wiring.with_provider_identity(settings, deadline)
    if arguments.manifest:
        document = manifest(document, settings, arguments.cluster)
        context.print_document(document, to_yaml(document))
    elif arguments.certificate:
        if not document["certificates"]:
            _logger.error("the TPM holds no certificate for its endorsement key")
            return EXIT_RETRY
        context.print_document(document, "".join(document["certificates"]))
    else:
        context.print_document(document, format_text(document))
    return 0


def collect(key: DeviceEndorsementKey) -> Document:
    """Return the public key as PEM, the SHA-256 of its SubjectPublicKeyInfo, its certificates."""
    try:
        public_key = public_key_from_area(PublicArea.from_tpm2b(key.public))
        digest = spki_sha256(public_key).hex()
    except (StructureMalformed, InvalidKey) as error:
        raise TpmFailed("the TPM returned an endorsement key that cannot be read") from error
    pem = public_key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    return {"publicKey": pem, "sha256": digest, "certificates": _certificates(key.certificates)}


def _certificates(contents: Sequence[bytes]) -> list[str]:
    """Return as PEM what begins like a certificate; the signer verifies it."""
    certificates = (certificate_der(content) for content in contents)
    return [
        "\n".join((_BEGIN_CERTIFICATE, *wrap(b64encode(der).decode(), 64), _END_CERTIFICATE))
        for der in certificates
        if der
    ]


def format_text(document: Document) -> str:
    """Return digest and PEM. All of it is one valid value of the endorsement key annotation."""
    return f"sha256:{document['sha256']}\n{document['publicKey']}"


def manifest(document: Document, settings: Settings, cluster: str | None) -> Document:
    """Return an EndorsementKey object to create on the management cluster.

    `cluster` is the NAMESPACE/NAME of the Cluster that it registers the key of this machine for;
    without it an operator has to add a registration. Raises `ConfigurationInvalid`.
    """
    spec: Document = {"publicKey": document["publicKey"]}
    if cluster is not None:
        namespace, _, name = cluster.partition("/")
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
