"""The table of unreadable objects is the same in the code and in the threat model."""

import re
from pathlib import Path
from threading import Event

from signer.clusters.management_cluster import ManagementCluster
from signer.fairness.memory_budget import Budgets
from signer.inventory.unreadable_kinds import INFRASTRUCTURE, UNREADABLE
from signer.kube.watches.cache import Cache
from tests.builders.workload import unconnected_workload
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient

THREAT_MODEL = Path(__file__).parents[4] / "docs/threat-model.md"
ADDRESSES = "the kubernetes service's addresses"
"""Read by a request of its own, not watched."""


def test_threat_model_has_the_table() -> None:
    text = THREAT_MODEL.read_text(encoding="utf-8")
    _, _, section = text.partition("### Objects that cannot be read\n")
    table = section.partition("\n\nA list")[0]
    [_, *rows] = re.findall(r"^\| (.+) \| (.+) \|$", table, re.MULTILINE)
    assert rows == [(kind, effect.value) for kind, effect in UNREADABLE.items()]


def test_each_watched_kind_has_its_row() -> None:
    management = ManagementCluster(
        FakeClient(FakeCluster()),
        Event(),
        lambda *_: None,
        budgets=Budgets(),
        infrastructure_groups=(),
    )
    caches = [
        value
        for owner in (management, unconnected_workload())
        for value in vars(owner).values()
        if isinstance(value, Cache)
    ]
    found = {cache.plural: cache._effect for cache in caches if cache.plural != ADDRESSES}
    assert found == {kind: e for kind, e in UNREADABLE.items() if kind != INFRASTRUCTURE}
