"""What the claims of a certificate cost the management cluster: CPU of kube-apiserver and etcd.

    make bench ARGS='-k claim_writes'
    make bench ARGS='-k claim_writes' CLAIMS=5000

The signer's own store writes them, with the signer's permissions, and nothing else runs. What the
servers cost while they are idle is subtracted. etcd does not wait for the disk here
(`--unsafe-no-fsync`), so wall times say nothing about a real one.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from signer.inventory.custom_resources.claim_store import KubeClaimStore
from signer.kinds.attested_node import AttestedNodeObject, encode_attested_node
from signer.kinds.endorsement_key import EndorsementKeyObject, encode_endorsement_key
from signer.kube.transport.client import ApiClient
from signer.kube.transport.kubeconfig import parse_kubeconfig
from tests.bench.claims import CLUSTER, holder, numbered_node
from tests.bench.storm import cpu_seconds
from tests.controlplane import pins, provide
from tests.harness.management import ManagementCluster

CLAIMS = int(os.environ.get("CLAIMS", "500"))
THREADS = 8
IDLE_SECONDS = 10
KEY = ec.generate_private_key(ec.SECP256R1()).public_key()
PEM = KEY.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

T = TypeVar("T")
Claim = tuple[EndorsementKeyObject, AttestedNodeObject]


def join(store: KubeClaimStore, number: int) -> Claim:
    """Write K1, K2 and K3 of a join."""
    now, node = datetime.now(UTC), numbered_node(number)
    key = store.create_endorsement_key(node.endorsement_key, PEM, holder(number), now)
    stored = store.create_attested_node(node)
    return store.set_key_holder(key, holder(number), now), stored


def renew(store: KubeClaimStore, number: int, claim: Claim) -> Claim:
    """Write K2 and K3 of a renewal."""
    key, node = claim
    stored = store.replace_attested_node(node, numbered_node(number))
    return store.set_key_holder(key, holder(number), datetime.now(UTC)), stored


def test_claim_writes(tmp_path: Path) -> None:
    """Print milliseconds of CPU for each certificate, and the sizes of the objects."""
    assets = provide.kubernetes(pins.newest(), provide.ALL)
    with ManagementCluster("management", tmp_path / "management", assets) as management:
        management.create_namespace(CLUSTER.namespace)
        connection = parse_kubeconfig(management.signer_kubeconfig().encode())
        api = ApiClient("management", connection, user_agent="bench")
        store, numbers = KubeClaimStore(api), range(CLAIMS)

        def measured(work: Callable[[], T]) -> tuple[T, float, float]:
            """Call `work`; return its value, the CPU seconds of the servers and the wall time."""
            before, began = sum(map(cpu_seconds, management.pids())), time.perf_counter()
            value = work()
            spent = sum(map(cpu_seconds, management.pids())) - before
            return value, spent, time.perf_counter() - began

        idle = measured(lambda: time.sleep(IDLE_SECONDS))[1] / IDLE_SECONDS
        with ThreadPoolExecutor(THREADS) as pool:
            claims, *joins = measured(lambda: list(pool.map(partial(join, store), numbers)))
            renewed, *renewals = measured(
                lambda: list(pool.map(partial(renew, store), numbers, claims))
            )
        api.close()
    assert len(claims) == len(renewed) == CLAIMS
    costs = {"join, 3 writes": joins, "renewal, 2 writes": renewals}
    key = encode_endorsement_key("0" * 64, PEM, holder(0), datetime.now(UTC))
    sizes = [len(json.dumps(body)) for body in (key, encode_attested_node(numbered_node(0), "1"))]
    lines = [f"Claims of {CLAIMS} nodes: CPU of kube-apiserver and etcd for each certificate"]
    lines += [
        f"  {name:20}{1000 * (cpu - idle * wall) / CLAIMS:7.2f} ms"
        for name, (cpu, wall) in costs.items()
    ]
    lines.append(f"  idle {100 * idle:.1f} % of a CPU, which is subtracted")
    lines.append("  EndorsementKey {} bytes, AttestedNode {} bytes".format(*sizes))
    sys.stdout.write("\n" + "\n".join(lines) + "\n")
