"""The list of ended certificates: which policies the signer writes, and when it deletes them."""

from datetime import timedelta

import pytest

from signer.claims.ended_entry import EndedEntry
from signer.errors import ClaimConflict, EndedCertificatesNotListed
from signer.inventory.ended_certificates import POLICY_NAMES, EndedCertificatesClient
from signer.kinds.resources import ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS
from signer.kube.transport.client import Request, Response
from tests.builders.scenario import NOW
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient

UNTIL = NOW + timedelta(days=1)
BAN = EndedEntry(key="ab" * 16, term=1, is_ban=True, since=NOW, until=UNTIL)
HELD = EndedEntry(key="cd" * 16, term=2, is_ban=False, since=NOW, until=UNTIL)
FIRST, SECOND, *_ = POLICY_NAMES


def path(name: str = FIRST) -> str:
    return ADMISSION_POLICIES.object_path(name)


def client(cluster: FakeCluster) -> EndedCertificatesClient:
    return EndedCertificatesClient(FakeClient(cluster))


def listing(cluster: FakeCluster, **entries: EndedEntry | None) -> None:
    client(cluster).change(lambda _: entries)


def policies(cluster: FakeCluster) -> list[str]:
    """Return the names of the policies, each of which has its binding."""
    names = [name for name in POLICY_NAMES if path(name) in cluster.objects]
    assert [ADMISSION_POLICY_BINDINGS.object_path(name) in cluster.objects for name in names] == [
        True
    ] * len(names)
    return names


def many(count: int) -> dict[str, EndedEntry]:
    return {f"node-{number:05}": BAN for number in range(count)}


def test_list_exists_only_while_something_is_ended() -> None:
    cluster = FakeCluster()
    listing(cluster, **{"node-1": BAN, "node-2": HELD})
    listed = client(cluster).read()
    assert (listed.entry("node-1"), listed.entry("node-2"), listed.entry("x")) == (BAN, HELD, None)
    listing(cluster, **{"node-1": None})
    assert client(cluster).read().names == {"node-2"}
    listing(cluster, **{"node-2": None})
    assert cluster.objects == {}


def test_entry_that_is_there_costs_no_write() -> None:
    cluster = FakeCluster()
    listing(cluster, **{"node-1": BAN})
    written = len(cluster.writes)
    listing(cluster, **{"node-1": BAN, "node-2": None})
    assert len(cluster.writes) == written


def test_list_that_did_not_exist_is_read_again_after_ten_seconds() -> None:
    cluster, clock = FakeCluster(), [0.0]
    reader = EndedCertificatesClient(FakeClient(cluster), monotonic=lambda: clock[0])
    assert reader.entry("node-1") is None
    listing(cluster, **{"node-1": BAN})
    clock[0] = 9.9
    assert reader.entry("node-1") is None
    clock[0] = 10.0
    assert reader.entry("node-1") == BAN


def test_list_that_the_client_wrote_is_read_at_once() -> None:
    reader = client(FakeCluster())
    assert reader.entry("node-1") is None
    reader.change(lambda _: {"node-1": BAN})
    assert reader.entry("node-1") == BAN


def test_list_that_another_thread_writes_meanwhile_is_read_again() -> None:
    """The read was answered before the write, and its answer arrives after it."""
    cluster = FakeCluster()
    api = FakeClient(cluster)
    reader = EndedCertificatesClient(api)
    find = api.find

    def find_before_a_write(path: str) -> Response | None:
        api.find = find  # type: ignore[method-assign]
        found = find(path)
        reader.change(lambda _: {"node-1": BAN})
        return found

    api.find = find_before_a_write  # type: ignore[method-assign]
    assert reader.entry("node-1") is None
    assert reader.entry("node-1") == BAN


def test_list_that_is_read_during_a_write_is_read_again() -> None:
    cluster = FakeCluster()
    reader = client(cluster)

    def read(_: Request) -> None:
        reader.entry("node-2")

    cluster.intercept(read, "PATCH")
    reader.change(lambda _: {"node-1": BAN})
    assert reader.entry("node-1") == BAN


def test_text_that_no_signer_wrote_is_no_entry() -> None:
    cluster = FakeCluster()
    listing(cluster, **{"node-1": BAN})
    variables = cluster.objects[path()]["spec"]["variables"]
    text = BAN.encode()
    for wrong in ("none:x 1 2", f"{text} 3", text.replace("none", "any"), text.replace(".1", ".0")):
        variables[1]["expression"] = f"{{'node-1': '{wrong}'}}"
        assert client(cluster).read().names == frozenset()


def test_entries_of_others_survive_a_concurrent_write() -> None:
    cluster = FakeCluster()
    listing(cluster, **{"node-1": BAN})

    def meanwhile(_: Request) -> None:
        listing(cluster, **{"node-2": BAN})

    cluster.intercept(meanwhile, "PATCH")
    listing(cluster, **{"node-3": BAN})
    assert client(cluster).read().names == {"node-1", "node-2", "node-3"}


def test_last_entry_is_not_deleted_with_one_that_was_added_meanwhile() -> None:
    cluster = FakeCluster()
    listing(cluster, **{"node-1": BAN})
    cluster.intercept(lambda _: listing(cluster, **{"node-2": BAN}), "DELETE")
    listing(cluster, **{"node-1": None})
    assert client(cluster).read().names == {"node-2"}


def test_writers_without_end_are_a_conflict() -> None:
    cluster = FakeCluster()
    cluster.intercept(409, "PATCH", times=99)
    with pytest.raises(ClaimConflict):
        listing(cluster, **{"node-1": BAN})


def test_full_policy_is_followed_by_a_second_one() -> None:
    """An entry stays in its policy: it must not be in none for a moment."""
    cluster = FakeCluster()
    listing(cluster, **many(1300))
    assert policies(cluster) == [FIRST, SECOND]
    listed = client(cluster).read()
    assert len(listed.names) == 1300
    assert all(len(str(cluster.objects[path(name)]["spec"])) < 100_000 for name in (FIRST, SECOND))
    second = set(listed.parts[1].entries)
    listing(cluster, **dict.fromkeys(listed.parts[0].entries))
    assert client(cluster).read().names == second
    assert policies(cluster) == [FIRST, SECOND]
    listing(cluster, **dict.fromkeys(second))
    assert policies(cluster) == []


def test_more_than_all_policies_hold_is_said() -> None:
    with pytest.raises(EndedCertificatesNotListed, match="no more space"):
        listing(FakeCluster(), **many(12_000))


@pytest.mark.parametrize("status", [403, 404, 422])
@pytest.mark.parametrize("what", ["validatingadmissionpolicies/", "policybindings/"])
def test_cluster_that_permits_no_list_is_said(status: int, what: str) -> None:
    cluster = FakeCluster()
    cluster.intercept(status, "PATCH", what)
    with pytest.raises(EndedCertificatesNotListed, match="apply workload-rbac"):
        listing(cluster, **{"node-1": BAN})


def test_list_that_may_not_be_read_is_said() -> None:
    cluster = FakeCluster()
    cluster.intercept(403, "GET")
    with pytest.raises(EndedCertificatesNotListed):
        client(cluster).read()


def test_write_without_a_change_repairs_what_others_changed() -> None:
    cluster = FakeCluster()
    listing(cluster, **{"node-1": BAN})
    before = cluster.objects[path()]["spec"]
    cluster.objects[path()]["spec"] = before | {"validations": []}
    del cluster.objects[ADMISSION_POLICY_BINDINGS.object_path(FIRST)]
    assert client(cluster).write(client(cluster).read(), {})
    assert cluster.objects[path()]["spec"] == before
    assert policies(cluster) == [FIRST]
