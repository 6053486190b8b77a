"""VM IDs from Azure, against a server that answers as the references of its APIs say."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from common.errors import AttestationError
from signer.errors import PlatformQueryFailed, PlatformUnavailable
from signer.platforms import azure
from signer.platforms.azure import Azure
from signer.platforms.credentials import RENEWED_BEFORE, KeptCredentials
from tests.fakes.api_server import FakeApiServer, Handler, api_server
from tests.fakes.azure import (
    ACCESS_TOKEN,
    SECRET,
    SUBJECT_TOKEN,
    TOKEN_PATH,
    FakeAzure,
    credentials_file,
    give_error,
    machine,
    token,
)
from tests.fakes.platforms import with_file

SUBSCRIPTION = "9a3f1c5e-0f7b-4d4c-8b1a-2c9d3e4f5a6b"
COMPUTE = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/team-a/providers/Microsoft.Compute"
VM = f"{COMPUTE}/virtualMachines/worker-1"
IN_SET = f"{COMPUTE}/virtualMachineScaleSets/workers/virtualMachines/7"
VM_ID = "390cbcf5-6c67-4d9b-98ef-c3f1699cc8fc"


@pytest.fixture
def service() -> FakeAzure:
    # Resource Manager does not promise lower case.
    return FakeAzure({VM: VM_ID.upper()})


@pytest.fixture(autouse=True)
def server(
    service: FakeAzure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeApiServer]:
    # Each test begins without an access token.
    monkeypatch.setattr(azure, "_SESSIONS", KeptCredentials())
    with api_server(service.handle, tmp_path) as running:
        yield running


@pytest.fixture
def platform(server: FakeApiServer, tmp_path: Path) -> Azure:
    return Azure(with_file(credentials_file(tmp_path, server)))


def test_id_of_a_virtual_machine_is_read(platform: Azure) -> None:
    assert platform.vm_id(f"azure://{VM}") == VM_ID


def test_id_of_a_member_of_a_scale_set_is_read(platform: Azure, service: FakeAzure) -> None:
    service.vm_ids = {IN_SET: VM_ID}
    assert platform.vm_id(f"azure://{IN_SET}") == VM_ID


def test_virtual_machine_that_does_not_exist_has_no_id(platform: Azure) -> None:
    assert platform.vm_id(f"azure://{VM}2") is None


def test_token_of_another_issuer_serves_instead_of_the_secret(
    server: FakeApiServer, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(f"{SUBJECT_TOKEN}\n", encoding="ascii")
    changes = {"clientSecret": None, "federatedTokenFile": str(tmp_path / "token")}
    file = credentials_file(tmp_path, server, **changes)
    assert Azure(with_file(file)).vm_id(f"azure://{VM}") == VM_ID


def test_one_access_token_serves_several_queries(platform: Azure, service: FakeAzure) -> None:
    for _ in range(3):
        platform.vm_id(f"azure://{VM}")
    assert service.logins == 1


def test_access_token_is_replaced_before_it_ends(platform: Azure, service: FakeAzure) -> None:
    service.lifetime = int(RENEWED_BEFORE.total_seconds())
    for _ in range(2):
        platform.vm_id(f"azure://{VM}")
    assert service.logins == 2


def test_access_token_of_one_account_does_not_serve_another(
    platform: Azure, service: FakeAzure, server: FakeApiServer, tmp_path: Path
) -> None:
    platform.vm_id(f"azure://{VM}")
    credentials_file(tmp_path, server, clientSecret="of another client")
    with pytest.raises(PlatformQueryFailed, match="credentials for the platform") as caught:
        platform.vm_id(f"azure://{VM}")
    assert "AADSTS7000215" in caught.value.detail
    assert service.logins == 2


Answers = dict[str, tuple[type[AttestationError], Handler]]
LOGINS: Answers = {
    "throttled": (PlatformUnavailable, lambda a: a.give({}, 429)),
    "outage": (PlatformUnavailable, lambda a: a.give(b"", 503)),
    "refused": (PlatformQueryFailed, lambda a: a.give({"error": "invalid_scope"}, 400)),
    "redirect": (PlatformQueryFailed, lambda a: a.give(b"", 302, Location="https://example.org")),
    "no JSON": (PlatformQueryFailed, lambda a: a.give(b"<html>")),
    "nested too deeply": (PlatformQueryFailed, lambda a: a.give(b"[" * 50_000)),
    "another type": (PlatformQueryFailed, lambda a: a.give(token(token_type="pop"))),
    "no text": (PlatformQueryFailed, lambda a: a.give(token(access_token=1))),
    "no ASCII": (PlatformQueryFailed, lambda a: a.give(token(access_token="\xe9"))),
    "no end": (PlatformQueryFailed, lambda a: a.give(token(expires_in=None))),
    "an endless token": (PlatformQueryFailed, lambda a: a.give(token(expires_in=10**18))),
}
MACHINES: Answers = {
    "no permission": (PlatformQueryFailed, lambda a: give_error(a, 403, "AuthorizationFailed")),
    "throttled": (PlatformUnavailable, lambda a: give_error(a, 429, "OperationNotAllowed")),
    "outage": (PlatformUnavailable, lambda a: give_error(a, 500, "InternalServerError")),
    "no JSON": (PlatformQueryFailed, lambda a: a.give(b"<html>")),
    "no object": (PlatformQueryFailed, lambda a: a.give([])),
    "another machine": (PlatformQueryFailed, lambda a: a.give(machine(f"{VM}2", VM_ID))),
    "no properties": (PlatformQueryFailed, lambda a: a.give(machine(VM, VM_ID, properties=None))),
    "no UUID": (PlatformQueryFailed, lambda a: a.give(machine(VM, f"{VM_ID}0"))),
    "a number": (
        PlatformQueryFailed,
        lambda a: a.give(machine(VM, VM_ID, properties={"vmId": 7})),
    ),
}


@pytest.mark.parametrize("name", LOGINS)
def test_other_answers_give_no_access_token(
    name: str, platform: Azure, server: FakeApiServer
) -> None:
    expected, server.handler = LOGINS[name]
    with pytest.raises(expected) as caught:
        platform.vm_id(f"azure://{VM}")
    assert [request.path for request in server.requests] == [TOKEN_PATH]
    assert not {SECRET, ACCESS_TOKEN} & set(caught.value.detail.split("'"))


@pytest.mark.parametrize("name", MACHINES)
def test_other_answers_give_no_id(name: str, platform: Azure, server: FakeApiServer) -> None:
    platform.vm_id(f"azure://{VM}")
    expected, server.handler = MACHINES[name]
    with pytest.raises(expected):
        platform.vm_id(f"azure://{VM}")


@pytest.mark.parametrize(
    "changes",
    [
        {"clientSecret": None},
        {"federatedTokenFile": "/token"},
        {"tenantId": None},
        {"tenantId": "common"},
        {"clientId": ""},
        {"authorityHost": "login.example/other"},
        {"resourceManagerHost": "user@management.example"},
        {"subscriptionId": SUBSCRIPTION},
    ],
)
def test_account_of_another_form_is_reported_without_the_secret(
    changes: dict[str, object], server: FakeApiServer, tmp_path: Path
) -> None:
    file = credentials_file(tmp_path, server, **changes)
    with pytest.raises(PlatformQueryFailed) as caught:
        Azure(with_file(file)).vm_id(f"azure://{VM}")
    assert "one of clientSecret and federatedTokenFile" in caught.value.detail
    assert SECRET not in caught.value.detail
    assert server.requests == []


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", json.dumps(SECRET).encode()])
def test_file_that_is_no_account_is_reported(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "azure.json").write_bytes(content)
    with pytest.raises(PlatformQueryFailed) as caught:
        Azure(with_file(tmp_path / "azure.json")).vm_id(f"azure://{VM}")
    assert "must be JSON" in caught.value.detail
    assert SECRET not in caught.value.detail


@pytest.mark.parametrize("resource", [VM, IN_SET])
def test_location_is_the_subscription(platform: Azure, resource: str) -> None:
    assert platform.location(f"azure://{resource}") == SUBSCRIPTION


@pytest.mark.parametrize(
    "resource",
    [
        f"{COMPUTE}/virtualMachines/",
        f"{COMPUTE}/virtualMachines/..",
        f"{VM}/../worker-2",
        f"{VM}?$expand=userData",
        f"{VM}\n",
        f"{COMPUTE}/virtualMachineScaleSets/workers/virtualMachines/first",
        f"{COMPUTE}/disks/worker-1",
        VM.replace(SUBSCRIPTION, SUBSCRIPTION.upper()),
        VM.replace("team-a", ".."),
    ],
)
def test_provider_id_of_another_form_has_no_location(platform: Azure, resource: str) -> None:
    with pytest.raises(ValueError, match="azure://"):
        platform.location(f"azure://{resource}")
