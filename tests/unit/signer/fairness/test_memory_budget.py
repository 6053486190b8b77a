"""Memory budgets: a tenant is charged what its values take, and leaves the others their share."""

import base64
import gc
import json
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from common.names import CHALLENGE_ANNOTATION, CLIENT_SIGNER
from signer.fairness.memory_budget import MemoryBudget
from signer.inventory.caches import read_node
from signer.kinds.csr import Csr
from signer.kinds.decode import Source, read_as
from signer.kube.csrs import read_csr, read_pending_csr
from signer.kube.pages import Page
from signer.kube.watches.cache import Cache

PER_TENANT, TOTAL, RESERVED = 100, 250, 10


def budget() -> MemoryBudget:
    return MemoryBudget(per_tenant=PER_TENANT, total=TOTAL, reserved=RESERVED)


def test_tenant_is_held_to_its_share() -> None:
    memory_budget = budget()
    assert memory_budget.acquire("a", PER_TENANT)
    assert not memory_budget.acquire("a", 1)
    assert memory_budget.acquire("b", PER_TENANT)
    memory_budget.release("a", 1)
    assert memory_budget.acquire("a", 1)
    assert memory_budget.used() == {"a": PER_TENANT, "b": PER_TENANT}
    assert memory_budget.refused() == {"a": 1}


def test_tenants_that_use_the_total_up_leave_the_others_their_reserve() -> None:
    memory_budget = budget()
    for tenant in ("a", "b", "c", "d"):
        memory_budget.acquire(tenant, PER_TENANT)
    assert memory_budget.acquire("c", TOTAL - 2 * PER_TENANT)
    assert not memory_budget.acquire("c", 1)
    assert memory_budget.acquire("d", RESERVED)
    assert not memory_budget.acquire("d", 1)
    assert memory_budget.acquire("e", RESERVED)


def hostile(number: int, **spec: Any) -> dict[str, Any]:  # noqa: ANN401 # fields of spec
    """Return a CSR that fills fields which once had no weight, with letters of four bytes."""
    wide = "\U0001f600" * 4000
    condition = {"status": "True", "reason": f"r{number}{wide}", "message": wide}
    return {
        "metadata": {
            "name": f"csr-{number}",
            "uid": "u",
            "resourceVersion": "1",
            "creationTimestamp": "2026-11-21T09:30:00Z",
            "annotations": {CHALLENGE_ANNOTATION: f"{number}{wide}"},
        },
        "spec": {
            "signerName": CLIENT_SIGNER,
            "request": base64.b64encode(b"request").decode(),
            "username": f"{number}",
            "groups": [f"{number} group {n}" for n in range(100)],
            "usages": [f"{number} usage {n}" for n in range(100)],
            **spec,
        },
        "status": {"conditions": [{"type": f"{number} {n}", **condition} for n in range(5)]},
    }


@contextmanager
def traced() -> Iterator[Callable[[], tuple[int, int]]]:
    """Trace memory; yield a function that returns the bytes in use, and their maximum so far."""
    gc.collect()
    tracemalloc.start()
    try:
        yield tracemalloc.get_traced_memory
    finally:
        tracemalloc.stop()


def test_fifty_hostile_csrs_weigh_what_they_take() -> None:
    """50 CSRs weighed 0.1 MiB and took 190 MiB: fields were left out, and characters counted."""
    bodies = [json.dumps(hostile(number)).encode() for number in range(50)]
    memory_budget = MemoryBudget()
    cache: Cache[Csr] = Cache("csrs", budget=memory_budget, tenant="team-a")
    with traced() as memory:
        for number, body in enumerate(bodies):
            assert cache.upsert(str(number), read_csr(body))
        traced_bytes, _ = memory()
    charged_bytes = memory_budget.used()["team-a"]
    assert traced_bytes > 2 << 20
    assert traced_bytes * 0.9 < charged_bytes < traced_bytes * 1.2


def test_fields_that_are_not_read_are_not_built() -> None:
    """The standard decoder built every value of such an object, while all threads waited."""
    body = hostile(1)
    del body["status"]
    body["status"] = {}
    body["metadata"]["annotations"] = {}
    body["metadata"]["managedFields"] = [{"f:x": [0] * 20} for _ in range(20_000)]
    content = json.dumps(body).encode()
    with traced() as memory:
        assert read_pending_csr(content) is not None
        _, most = memory()
    assert len(content) > 1 << 20
    assert most < 1 << 20


@pytest.mark.parametrize(
    "changes",
    [
        {"groups": ["g"] * 1001},
        {"usages": ["u"] * 1001},
        {"groups": ["g" * 5000]},
        {"username": "u" * 5000},
        {"signerName": "s" * 5000},
    ],
    ids=["groups", "usages", "one group", "user name", "signer name"],
)
def test_field_over_its_bound_makes_a_csr_unreadable(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        read_csr(json.dumps(hostile(1, **changes)).encode())


def test_of_an_oversized_request_only_enough_is_kept_to_deny_it() -> None:
    request = base64.b64encode(b"x" * (2 << 20)).decode()
    assert len(read_csr(hostile(1, request=request)).request) == (1536 << 10) + 1


@pytest.mark.parametrize("read", [read_node, read_csr, read_as(Page)])
def test_deeply_nested_object_is_unreadable(read: Callable[[Source], object]) -> None:
    """From Python 3.14 on the size of the stack is the limit, which is more than 100,000 levels."""
    with pytest.raises(ValueError, match="nested too deeply"):
        read(b'{"x":' + b"[" * 1_000_000)
