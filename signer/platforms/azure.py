"""IDs of Azure's virtual machines: `properties.vmId` of Azure Resource Manager.

Azure has no API for endorsement keys. A quote by the attestation key that it certifies names the
virtual machine (signer/verify/machines/attestation_certificate.py).

Source: Azure REST API, "Virtual Machines - Get" and "Virtual Machine Scale Set VMs - Get", version
2024-07-01; "OAuth 2.0 client credentials flow on the Microsoft identity platform". Built from the
references, and never run against the real services.
"""

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from signer.kube.transport.http_messages import HttpAnswer
from signer.platforms.credentials import (
    KeptCredentials,
    TemporaryCredentials,
    read_credentials_file,
    read_token,
    unusable,
)
from signer.platforms.https import UNEXPECTED_JSON, call, describe, invalid_answer, refused
from signer.platforms.platform import parse_provider_id
from signer.policy.policy import PlatformRules

_UUID: Final = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_PROVIDER_ID: Final = re.compile(
    rf"azure://(?P<resource>/subscriptions/(?P<subscription>{_UUID})"
    r"/resourceGroups/[-\w.()]{0,89}[-\w()]/providers/Microsoft\.Compute"
    r"/(?:virtualMachineScaleSets/[-\w.]{0,63}\w/virtualMachines/[0-9]{1,10}"
    r"|virtualMachines/[-\w.]{0,79}\w))",
    re.ASCII,
)
"""Cluster API Provider Azure: `azure://<resource ID>`, of a virtual machine or of one in a set."""
_parse: Final = partial(
    parse_provider_id, _PROVIDER_ID, "azure:// and the resource ID of a virtual machine"
)
_VM_ID: Final = re.compile(_UUID, re.IGNORECASE)
_API_VERSION: Final = "2024-07-01"
_HOST: Final = re.compile(r"[A-Za-z0-9.-]+(?::[0-9]{1,5})?")
_ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_REQUIRED: Final = frozenset({"tenantId", "clientId"})
_SECRETS: Final = frozenset({"clientSecret", "federatedTokenFile"})
_OPTIONAL: Final = frozenset({"authorityHost", "resourceManagerHost", "caFile"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AzureAccount:
    """The content of a credentials file: an application that Microsoft Entra ID knows."""

    tenant_id: str
    client_id: str
    client_secret: str | None = field(repr=False)
    federated_token_file: Path | None
    """A token of another issuer instead of the secret (workload identity federation)."""
    authority_host: str
    resource_manager_host: str
    """HOST or HOST:PORT, as those of sovereign clouds."""
    ca_file: Path | None


_SESSIONS: Final = KeptCredentials[AzureAccount, str]()


class Azure:
    """One account of Azure; the location is the subscription."""

    def __init__(self, rules: PlatformRules) -> None:
        self._credentials_file = Path(rules.credentials_file)

    def location(self, provider_id: str) -> str:
        """Return the subscription of a provider ID."""
        return _parse(provider_id)["subscription"]

    def vm_id(self, provider_id: str) -> str | None:
        """Query the ID of a virtual machine."""
        resource = _parse(provider_id)["resource"]
        account = read_account(self._credentials_file)
        token = _SESSIONS.credentials(account, datetime.now(UTC), lambda: _log_in(account))
        url = f"https://{account.resource_manager_host}{resource}?api-version={_API_VERSION}"
        headers = {"authorization": f"Bearer {token}"}
        return read_answer(call("GET", url, headers, None, account.ca_file), resource)


def read_account(path: Path) -> AzureAccount:
    """Read the account of a credentials file."""
    content = read_credentials_file(path)
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError):
        fields = None
    if not _is_account(fields):
        # No error of the parser is quoted: it may have a part of the secret.
        problem = (
            "must be JSON with the texts tenantId, clientId, one of clientSecret and"
            " federatedTokenFile, and optionally authorityHost, resourceManagerHost and caFile"
        )
        raise unusable(f"{path}: {problem}")
    token_file, ca_file = fields.get("federatedTokenFile"), fields.get("caFile")
    return AzureAccount(
        tenant_id=fields["tenantId"],
        client_id=fields["clientId"],
        client_secret=fields.get("clientSecret"),
        federated_token_file=None if token_file is None else Path(token_file),
        authority_host=fields.get("authorityHost", "login.microsoftonline.com"),
        resource_manager_host=fields.get("resourceManagerHost", "management.azure.com"),
        ca_file=None if ca_file is None else Path(ca_file),
    )


def _is_account(fields: Any) -> bool:  # noqa: ANN401 - JSON
    if not isinstance(fields, dict) or not all(isinstance(v, str) and v for v in fields.values()):
        return False
    hosts = [fields[name] for name in ("authorityHost", "resourceManagerHost") if name in fields]
    return (
        _REQUIRED <= fields.keys() <= _REQUIRED | _SECRETS | _OPTIONAL
        and len(fields.keys() & _SECRETS) == 1
        and _VM_ID.fullmatch(fields["tenantId"]) is not None
        and all(_HOST.fullmatch(host) for host in hosts)
    )


def _log_in(account: AzureAccount) -> TemporaryCredentials[str]:
    """Get an access token for the client, by its secret or by a token of another issuer."""
    parameters = {
        "grant_type": "client_credentials",
        "client_id": account.client_id,
        "scope": f"https://{account.resource_manager_host}/.default",
    }
    if account.federated_token_file is None:
        parameters["client_secret"] = account.client_secret or ""
    else:
        parameters["client_assertion_type"] = _ASSERTION_TYPE
        parameters["client_assertion"] = read_token(account.federated_token_file)
    url = f"https://{account.authority_host}/{account.tenant_id}/oauth2/v2.0/token"
    headers = {"content-type": "application/x-www-form-urlencoded"}
    begun = datetime.now(UTC)
    answer = call("POST", url, headers, urlencode(parameters).encode(), account.ca_file)
    if answer.status != HTTPStatus.OK:
        raise unusable(describe(answer))
    return read_session(answer, begun)


def read_session(answer: HttpAnswer, begun: datetime) -> TemporaryCredentials[str]:
    """Return the access token of an answer. Raises `PlatformQueryFailed`."""
    try:
        fields = json.loads(answer.content)
        token, seconds = fields["access_token"], fields["expires_in"]
        if fields["token_type"] != "Bearer" or not (isinstance(token, str) and token.isascii()):  # noqa: S105 - the type, not the token
            raise ValueError("the answer must have an ASCII token of type Bearer")
        return TemporaryCredentials(token, begun + timedelta(seconds=int(seconds)))
    except (*UNEXPECTED_JSON, OverflowError) as error:
        # The content has the token, so only the type of the error is quoted.
        raise invalid_answer(type(error).__name__) from None


def read_answer(answer: HttpAnswer, resource: str) -> str | None:
    """Return the ID of the virtual machine in an answer about a resource.

    Raises `PlatformQueryFailed`.
    """
    if answer.status == HTTPStatus.NOT_FOUND:
        return None
    if answer.status != HTTPStatus.OK:
        raise refused(describe(answer))
    try:
        machine = json.loads(answer.content)
        given, vm_id = machine["id"].lower(), machine["properties"]["vmId"]
        if given != resource.lower() or _VM_ID.fullmatch(vm_id) is None:
            raise ValueError("the answer must have the resource ID of the query, and a UUID")
    except UNEXPECTED_JSON as error:
        raise invalid_answer(repr(error)) from error
    return str(vm_id.lower())
