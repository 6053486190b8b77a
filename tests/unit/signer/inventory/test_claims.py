"""Whether a Machine exists, by the API server: what cannot be read frees no key and no name."""

import json
from collections.abc import Container, Mapping
from typing import Any, cast

import pytest

from common.errors import ApiServerUnavailable
from signer.inventory.claims import KubeClaimStore
from signer.kube.client import ApiClient, Response
from signer.kube.decode import Json
from signer.model import MachineState
from tests.builders.kube_objects import HOME, PROVIDER_ID, cluster, machine, pool

CORE = "cluster.x-k8s.io/v1beta2"
KINDS = {"Cluster": "clusters", "Machine": "machines", "MachinePool": "machinepools"}


class Server:
    """Serves one Cluster with its Machines and pools."""

    def __init__(self, machines: list[Any], pools: list[Any]) -> None:
        namespace = f"/apis/{CORE}/namespaces/{HOME.namespace}"
        self._answers: dict[str, Json] = {
            "/apis/cluster.x-k8s.io": {"versions": [{"groupVersion": CORE}]},
            f"/apis/{CORE}": {
                "resources": [{"kind": kind, "name": name} for kind, name in KINDS.items()]
            },
            f"{namespace}/clusters/{HOME.name}": cluster(),
            f"{namespace}/machines": {"items": machines},
            f"{namespace}/machinepools": {"items": pools},
        }

    def get(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        accepted: Container[int] = (200,),
    ) -> Response:
        assert 200 in accepted
        assert query is None
        return Response(status=200, content=json.dumps(self._answers[path]).encode())

    def get_page(self, path: str, query: Mapping[str, str]) -> Response:
        assert query["limit"]
        return self.get(path)


def liveness(
    *machines: Any,  # noqa: ANN401 - objects
    pools: tuple[Any, ...] = (),
    name: str = "",
) -> MachineState:
    claims = KubeClaimStore(cast("ApiClient", Server([*machines], [*pools])))
    return claims.machine_state(HOME, PROVIDER_ID, name)


def unreadable(body: dict[str, Any]) -> dict[str, Any]:
    body["metadata"]["labels"] = {"pool": True}
    return body


def other() -> dict[str, Any]:
    body = machine("machine-2")
    body["spec"]["providerID"] = "metal://elsewhere"
    return body


def test_machines_and_pool_members_are_present() -> None:
    assert liveness(other()) is MachineState.ABSENT
    assert liveness(other(), machine()) is MachineState.PRESENT
    assert liveness(pools=(pool("pool-1", "metal://elsewhere"),)) is MachineState.ABSENT
    assert liveness(pools=(pool("pool-1", PROVIDER_ID),)) is MachineState.PRESENT


def test_another_machine_with_the_provider_id_is_not_the_one_of_the_claim() -> None:
    """A provider ID of hardware goes from one Machine to the next."""
    assert liveness(machine("machine-1"), name="machine-1") is MachineState.PRESENT
    assert liveness(machine("machine-2"), name="machine-1") is MachineState.ABSENT
    assert liveness(pools=(pool("pool-1", PROVIDER_ID),), name="machine-1") is MachineState.ABSENT


def test_unreadable_machine_leaves_the_state_undecided() -> None:
    """It is retried, and the log names the object to repair; nothing is freed before."""
    bodies = unreadable(machine()), unreadable(pool("pool-1", PROVIDER_ID))
    for machines, pools, kind in (((bodies[0],), (), "Machine"), ((), (bodies[1],), "MachinePool")):
        with pytest.raises(ApiServerUnavailable) as caught:
            liveness(other(), *machines, pools=pools)
        assert caught.value.message == f"a {kind} cannot be read"
        name = (*machines, *pools)[0]["metadata"]["name"]
        assert (
            caught.value.detail
            == f"team-a/{name}: Expected `str`, got `bool` - at `$.metadata.labels[...]`"
        )
