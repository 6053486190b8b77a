"""What platforms answer, and what names them: provider IDs, credentials files, HTTP answers."""

import base64
import json
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_public_key,
)

from signer.errors import PlatformQueryFailed, PlatformUnavailable
from signer.kube.transport.http_messages import HttpAnswer
from signer.platforms import aws, azure, gce
from signer.platforms.platform import Platform, VmPlatform
from signer.platforms.vsphere import read_keys
from signer.platforms.vsphere_api.vsphere_inventory import read_inventory, read_references
from tests.builders import certificates
from tests.builders.certificates import NOW
from tests.builders.software_tpm import rsa_key
from tests.fakes import azure as fake_azure
from tests.fakes import vcenter
from tests.fakes.platforms import RULES
from tests.fuzz.mutations import Form
from tests.fuzz.shared_targets import scenario
from tests.fuzz.target import Refused, Target, file

INSTANCE: Final = "i-0123456789abcdef0"
UUID: Final = "42180cbd-9d43-7b1c-6a0c-0f8a7c5a1e01"
VM: Final = (
    f"/subscriptions/{UUID}/resourceGroups/team-a/providers/Microsoft.Compute"
    "/virtualMachines/worker-1"
)
STATUSES: Final = (HTTPStatus.OK, HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN)
ERRORS: Final = (PlatformQueryFailed, PlatformUnavailable)


def _spki() -> bytes:
    key = scenario().ek.private.public_key()
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _answer(status: int, content: bytes) -> HttpAnswer:
    return HttpAnswer(status=status, headers={}, content=content)


def _provider_id(data: bytes) -> None:
    """Read the input for each platform. A tenant can write any provider ID."""
    platforms = (aws.Aws(RULES), azure.Azure(RULES), gce.Gce(RULES))
    text = data.decode("utf-8", "surrogateescape")
    if not any(_has_location(platform, text) for platform in platforms):
        raise Refused


def _has_location(platform: Platform | VmPlatform, provider_id: str) -> bool:
    try:
        location = platform.location(provider_id)
    except ValueError:
        return False
    assert location
    assert location.isascii()
    assert not set(location) & set("/?#@ ")
    return True


def _aws_answer(data: bytes) -> None:
    """Read the input as an answer of each status."""
    refused: list[Exception] = []
    for status in STATUSES:
        try:
            key = aws.read_answer(_answer(status, data), INSTANCE, "rsa-2048")
        except ERRORS as error:
            refused.append(error)
            continue
        assert (key is None) is (status is not HTTPStatus.OK)
    if len(refused) == len(STATUSES):
        raise refused[0]


def _aws_answers() -> list[bytes]:
    fields = {
        "instanceId": INSTANCE,
        "keyType": "rsa-2048",
        "keyFormat": "der",
        "keyValue": base64.b64encode(_spki()).decode(),
    }
    elements = "\n".join(f"<{name}>{value}</{name}>" for name, value in fields.items())
    error = "<Errors><Error><Code>InvalidInstanceID.NotFound</Code></Error></Errors>"
    return [
        f"<GetInstanceTpmEkPubResponse>\n{elements}\n</GetInstanceTpmEkPubResponse>".encode(),
        f"<Response>{error}</Response>".encode(),
    ]


def _aws_account(data: bytes) -> None:
    account = aws.read_account(file("aws", data))
    host = aws.endpoint_host(account, "eu-central-1")
    assert host
    assert "/" not in host


def _aws_accounts() -> list[bytes]:
    keys = b"[default]\naws_access_key_id = AKID\naws_secret_access_key = secret\n"
    return [
        keys,
        keys + b"aws_session_token = t\nca_bundle = /ca\nendpoint_url = https://ec2.example:1\n",
    ]


def _azure_answer(data: bytes) -> None:
    """Read the input as an answer to each of the two requests."""
    read: tuple[Callable[[], str | None], ...] = (
        lambda: azure.read_session(_answer(HTTPStatus.OK, data), NOW).credentials,
        lambda: azure.read_answer(_answer(HTTPStatus.OK, data), VM),
    )
    refused: list[Exception] = []
    for each in read:
        try:
            text = each()
        except ERRORS as error:
            refused.append(error)
            continue
        assert text is not None
        assert text.isascii()
    if len(refused) == len(read):
        raise refused[0]


def _azure_answers() -> list[bytes]:
    answers = (fake_azure.token(), fake_azure.machine(VM, UUID))
    return [json.dumps(answer).encode() for answer in answers]


def _azure_account(data: bytes) -> None:
    account = azure.read_account(file("azure", data))
    assert not set(account.authority_host + account.resource_manager_host) & set("/?#@ ")


def _azure_accounts() -> list[bytes]:
    account = {"tenantId": UUID, "clientId": UUID, "clientSecret": "secret"}
    more = {"authorityHost": "login.example", "resourceManagerHost": "h:1", "caFile": "/ca"}
    by_token = {"tenantId": UUID, "clientId": UUID, "federatedTokenFile": "/token"}
    return [json.dumps(fields).encode() for fields in (account, account | more, by_token)]


def _gce_answer(data: bytes) -> None:
    """Read the input as an answer of each status; only an identity is accepted."""
    for status in STATUSES[1:]:
        try:
            gce.read_answer(_answer(status, data))
        except ERRORS:
            continue
        raise AssertionError(status)
    for key in gce.read_answer(_answer(HTTPStatus.OK, data)):
        load_der_public_key(key)


def _gce_answers() -> list[bytes]:
    key = scenario().ek.private.public_key()
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    identity = {
        "kind": "compute#shieldedInstanceIdentity",
        "encryptionKey": {"ekPub": pem, "ekCert": "not read"},
        "eccP256EncryptionKey": {"ekPub": pem},
    }
    return [json.dumps(identity).encode()]


def _gce_account(data: bytes) -> None:
    gce.parse_credentials.cache_clear()
    gce.read_credentials(file("gce", data))


def _gce_accounts() -> list[bytes]:
    pem = rsa_key(2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    account = {
        "type": "service_account",
        "project_id": "team-a-prod",
        "private_key_id": "k",
        "private_key": pem,
        "client_email": "signer@team-a-prod.iam.gserviceaccount.com",
        "token_uri": "https://oauth2.googleapis.com/token",
        "universe_domain": "googleapis.com",
    }
    return [json.dumps(account).encode()]


def _vsphere_answers(data: bytes) -> None:
    """Read the input as the answers to both queries about a virtual machine."""
    try:
        answers = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Refused from error
    if not isinstance(answers, dict):
        raise Refused
    machines = read_references(answers.get("found"))
    inventory = read_inventory(answers.get("inventory"))
    for machine in machines:
        folder = inventory.folder(machine)
        assert folder is None or not folder or folder.startswith("/")
        for key in read_keys(inventory.objects.get(machine, {}), UUID):
            load_der_public_key(key)


def _vsphere_seeds() -> list[bytes]:
    machine = vcenter.reference("VirtualMachine", "vm-1")
    folder = vcenter.reference("Folder", "group-v1")
    root = vcenter.reference("Folder", "group-d1")
    certificate = base64.b64encode(certificates.authority("vTPM").der).decode()
    tpm = {"_typeName": "VirtualTPM", "endorsementKeyCertificate": [certificate]}
    properties = {
        "parent": folder,
        "config.uuid": vcenter.text(UUID),
        "config.hardware.device": {"_value": [tpm, {"_typeName": "VirtualDisk"}]},
    }
    objects = [
        vcenter.content(machine, properties),
        vcenter.content(folder, {"name": vcenter.text("team-a"), "parent": root}),
    ]
    answers = {"found": [machine], "inventory": {"objects": objects}}
    return [json.dumps(answers).encode()]


TARGETS = (
    Target(
        name="vsphere-answers",
        run=_vsphere_answers,
        seeds=_vsphere_seeds,
        errors=ERRORS,
        form=Form.JSON,
    ),
    Target(
        name="provider-id",
        run=_provider_id,
        seeds=lambda: [
            f"aws:///eu-central-1a/{INSTANCE}".encode(),
            f"azure://{VM}".encode(),
            b"gce://team-a-prod/europe-west3-a/node-1",
        ],
    ),
    Target(name="aws-answer", run=_aws_answer, seeds=_aws_answers, errors=ERRORS, form=Form.LINES),
    Target(
        name="aws-account", run=_aws_account, seeds=_aws_accounts, errors=ERRORS, form=Form.LINES
    ),
    Target(
        name="azure-answer", run=_azure_answer, seeds=_azure_answers, errors=ERRORS, form=Form.JSON
    ),
    Target(
        name="azure-account",
        run=_azure_account,
        seeds=_azure_accounts,
        errors=ERRORS,
        form=Form.JSON,
    ),
    Target(name="gce-answer", run=_gce_answer, seeds=_gce_answers, errors=ERRORS, form=Form.JSON),
    Target(
        name="gce-account", run=_gce_account, seeds=_gce_accounts, errors=ERRORS, form=Form.JSON
    ),
)
