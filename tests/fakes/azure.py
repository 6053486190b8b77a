"""Microsoft Entra ID and Azure Resource Manager, as far as the ID of a virtual machine needs them.

The answers have the form of the references ("OAuth 2.0 client credentials flow", "Virtual Machines
- Get", "Virtual Machine Scale Set VMs - Get"). They were not recorded from the real services.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.fakes.api_server import HOST, Answering, FakeApiServer

TENANT = "aaaabbbb-0000-cccc-1111-dddd2222eeee"
CLIENT = "00001111-aaaa-2222-bbbb-3333cccc4444"
SECRET = "A1bC2dE3fH4iJ5kL6mN7oP8qR9sT0u"
SUBJECT_TOKEN = "eyJhbGciOiJSUzI1NiJ9.e30.c2lnbmF0dXJl"
ACCESS_TOKEN = "eyJ0eXAiOiJKV1QiLCJhbGciOiJSUzI1NiJ9.example"
TOKEN_PATH = f"/{TENANT}/oauth2/v2.0/token"
_BY_TOKEN = {
    "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
    "client_assertion": SUBJECT_TOKEN,
}


@dataclass(slots=True)
class FakeAzure:
    """One tenant with one client, and the virtual machines that the client may read."""

    vm_ids: dict[str, str] = field(default_factory=dict)
    """By resource ID."""
    lifetime: int = 3599
    logins: int = 0

    def handle(self, answering: Answering) -> None:
        if answering.path == TOKEN_PATH:
            self._give_token(answering)
            return
        address = urlsplit(answering.path)
        assert address.query == "api-version=2024-07-01"
        if answering.headers.get("Authorization") != f"Bearer {ACCESS_TOKEN}":
            give_error(answering, 401, "InvalidAuthenticationToken")
        elif address.path not in self.vm_ids:
            give_error(answering, 404, "ResourceNotFound")
        else:
            answering.give(machine(address.path, self.vm_ids[address.path]))

    def _give_token(self, answering: Answering) -> None:
        self.logins += 1
        content = answering.server.requests[-1].content.decode()
        form = {name: values[0] for name, values in parse_qs(content).items()}
        fixed = {"grant_type": "client_credentials", "client_id": CLIENT}
        assert {name: form.pop(name, None) for name in fixed} == fixed
        assert form.pop("scope").endswith("/.default")
        if form not in ({"client_secret": SECRET}, _BY_TOKEN):
            error = {"error": "invalid_client", "error_description": "AADSTS7000215"}
            answering.give(error, 401)
        else:
            answering.give(token(expires_in=self.lifetime))


def token(**changes: object) -> dict[str, object]:
    """Return the answer with an access token; `changes` replace members."""
    fields = {"token_type": "Bearer", "expires_in": 3599, "access_token": ACCESS_TOKEN}
    return {**fields, "ext_expires_in": 3599, **changes}


def machine(resource: str, vm_id: str, **changes: object) -> dict[str, object]:
    """Return the answer about a virtual machine; `changes` replace members."""
    group = resource.split("/")[4]
    return {
        "name": resource.rpartition("/")[2],
        # Resource Manager writes the group as it was created.
        "id": resource.replace(f"/resourceGroups/{group}/", f"/resourceGroups/{group.upper()}/"),
        "type": "Microsoft.Compute/virtualMachines",
        "location": "westeurope",
        "properties": {"vmId": vm_id, "provisioningState": "Succeeded"},
        **changes,
    }


def give_error(answering: Answering, status: int, code: str) -> None:
    """Answer with an error of Resource Manager."""
    answering.give({"error": {"code": code, "message": "Refused."}}, status)


def credentials_file(directory: Path, server: FakeApiServer, **changes: object) -> Path:
    """Write the credentials of the client for a server; a change to `None` leaves a member out."""
    host = f"{HOST}:{server.server_port}"
    (directory / "azure-ca.crt").write_bytes(server.authority.pair.certificate)
    fields = {
        "tenantId": TENANT,
        "clientId": CLIENT,
        "clientSecret": SECRET,
        "authorityHost": host,
        "resourceManagerHost": host,
        "caFile": str(directory / "azure-ca.crt"),
        **changes,
    }
    file = directory / "azure.json"
    file.write_text(json.dumps({k: v for k, v in fields.items() if v is not None}), "utf-8")
    return file
