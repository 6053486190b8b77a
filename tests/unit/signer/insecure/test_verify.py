# ruff: noqa: ANN401 - changes are fields of the returned value
"""Each check of a request to the insecure signer: what passes, and one change that does not.

test_service.py has the check of the Cluster (R0).
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from common.errors import AttestationError, ExtensionNotAllowed, PemBlocksUnexpected, TooLarge
from common.formats.pem import encode_block
from common.requests.csr import build_pkcs10
from signer.errors import (
    BootstrapNotReady,
    ClusterPaused,
    MachineAlreadyCertified,
    MachineAmbiguous,
    MachineDeleting,
    MachineNotFound,
    MachineNotNew,
    RequesterNotAllowed,
    UsagesNotAllowed,
)
from signer.insecure.verify import (
    INSECURE_SIGNER,
    RecordedMachine,
    parse_first_request,
    verify_first_machine,
)
from signer.kinds.csr import Csr
from signer.kinds.machine import Address
from tests.builders.scenario import (
    CLUSTER,
    NODE,
    PROVIDER_ID,
    Scenario,
    default_keys,
    machine,
)

KUBEADM = frozenset({"system:bootstrappers", "system:bootstrappers:kubeadm:default-node-token"})
INSECURE_CLUSTER = replace(CLUSTER, client_signers=frozenset({INSECURE_SIGNER}))


def request(node_name: str = NODE, provider_id: str = PROVIDER_ID, **names: Any) -> bytes:
    key = default_keys()[2]
    der = build_pkcs10(key, node_name=node_name, provider_id=provider_id, **names)
    return encode_block("CERTIFICATE REQUEST", der)


def csr(**changes: Any) -> Csr:
    spec = {"signer_name": INSECURE_SIGNER, "groups": KUBEADM, **changes}
    return Scenario().csr(spec.pop("request", request()), **spec)


def recorded(certified_csr: str | None = None, **changes: Any) -> RecordedMachine:
    return RecordedMachine(
        machine=machine(**changes), resource_version="7", certified_csr=certified_csr
    )


def verified(
    *machines: RecordedMachine, node_exists: bool = False, of: Csr | None = None, **cluster: Any
) -> RecordedMachine:
    """Verify a request against these Machines, by default the one that fits."""
    pending = of or csr()
    return verify_first_machine(
        parse_first_request(pending),
        pending,
        cluster=replace(INSECURE_CLUSTER, **cluster),
        machines=machines or (recorded(),),
        node_exists=node_exists,
    )


def test_request_of_a_kubeadm_token_is_parsed() -> None:
    assert parse_first_request(csr()).node_name == NODE


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"usages": ("digital signature", "server auth")}, UsagesNotAllowed),
        ({"usages": ("client auth", "digital signature", "server auth")}, UsagesNotAllowed),
        ({"groups": frozenset({"system:bootstrappers"})}, RequesterNotAllowed),
        ({"username": "system:serviceaccount:a:b"}, RequesterNotAllowed),
        (
            {"username": f"system:node:{NODE}", "groups": KUBEADM | {"system:nodes"}},
            RequesterNotAllowed,
        ),
        ({"request": request(dns_names=[NODE])}, ExtensionNotAllowed),
        ({"request": request() * 2}, PemBlocksUnexpected),
        ({"annotations_size": 32 * 1024 + 1}, TooLarge),
    ],
)
def test_request_of_another_form_is_denied(
    changes: dict[str, Any], error: type[AttestationError]
) -> None:
    with pytest.raises(error):
        parse_first_request(csr(**changes))


@pytest.mark.parametrize(
    "names",
    [
        {},
        {"addresses": (Address(type="InternalDNS", address=f"{NODE.upper()}."),)},
        {"addresses": (), "name": NODE},
    ],
    ids=["Hostname", "InternalDNS", "name of the Machine"],
)
def test_m3_machine_with_the_node_name_is_found(names: dict[str, Any]) -> None:
    other = recorded(uid="other", name="other", addresses=())
    assert verified(other, recorded(**names)).machine.uid == machine().uid


def test_m7_request_of_the_record_is_continued() -> None:
    pending = csr()
    assert verified(recorded(pending.uid), of=pending).certified_csr == pending.uid


def test_m1_machine_that_is_being_replaced_does_not_keep_its_successor_out() -> None:
    old = recorded("earlier", uid="old", name="old", deleting=True)
    assert verified(old, recorded()).machine.uid == machine().uid


REFUSALS: dict[str, tuple[type[AttestationError], Callable[[], object]]] = {
    "no Machine has the name": (
        MachineNotFound,
        lambda: verified(recorded(addresses=(Address(type="InternalIP", address=NODE),))),
    ),
    "the Machine has another provider ID": (
        MachineNotFound,
        lambda: verified(recorded(provider_id="metal://rack-1/slot-2")),
    ),
    "two Machines have the name": (
        MachineAmbiguous,
        lambda: verified(recorded(), recorded(uid="other", name=NODE)),
    ),
    "another request is registered": (
        MachineAlreadyCertified,
        lambda: verified(recorded("another")),
    ),
    "the Machine is being deleted": (MachineDeleting, lambda: verified(recorded(deleting=True))),
    "bootstrap data are not ready": (
        BootstrapNotReady,
        lambda: verified(recorded(bootstrap_ready=False)),
    ),
    "the Cluster is paused": (ClusterPaused, lambda: verified(paused=True)),
    "the Machine has a nodeRef": (MachineNotNew, lambda: verified(recorded(node_ref=NODE))),
    "the Node exists": (MachineNotNew, lambda: verified(node_exists=True)),
}


@pytest.mark.parametrize(("error", "verify"), REFUSALS.values(), ids=REFUSALS)
def test_machine_that_may_not_join_is_refused(
    error: type[AttestationError], verify: Callable[[], object]
) -> None:
    with pytest.raises(error):
        verify()
