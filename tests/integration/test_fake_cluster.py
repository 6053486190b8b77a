"""The API server in memory and the real one: both meet one contract, as our clients see it."""

import json
import secrets
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from threading import Lock
from typing import Any, Protocol

import pytest

from signer.kube.discovery import served_resources
from signer.kube.transport.client import ApiClient, Expired, Response
from signer.kube.transport.interruption import Interruption
from signer.kube.transport.kubeconfig import parse_kubeconfig
from signer.kube.transport.list_watch import ListWatch
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient, FakeStream
from tests.fakes.cluster_objects import MACHINES, Object
from tests.harness import objects
from tests.harness.fleet import Fleet
from tests.harness.process import wait_until
from tests.integration.csrs import CSRS
from tests.integration.plain_requests import request

ANY = range(600)
CONFLICT, GONE, INVALID = 409, 410, 422


class Stream(Protocol):
    """The part of a stream that watches."""

    def watch(self, path: str, query: Mapping[str, str]) -> Generator[bytes, None, None]:
        """Yield events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One API server, with a namespace of its own for each test."""

    api: ApiClient
    stream: Stream
    fleet: Fleet | None
    namespace: str

    @property
    def config_maps(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps"

    @property
    def machines(self) -> str:
        return MACHINES.collection_path(self.namespace)

    def create(self, path: str, body: Mapping[str, Any]) -> Object:
        return decoded(self.api.create(path, body))

    def config_map(self, name: str = "a", **metadata: object) -> Object:
        """Create a ConfigMap."""
        data = {"one": "1", "two": "2"}
        return self.create(self.config_maps, {"metadata": {"name": name, **metadata}, "data": data})

    def names(self, **query: str) -> list[str]:
        """Return the names of the ConfigMaps that a list finds."""
        found = decoded(self.api.get(self.config_maps, query))["items"]
        return [item["metadata"]["name"] for item in found]

    def compact(self) -> None:
        """Let everything that continues from an earlier version expire."""
        if isinstance(self.api, FakeClient):
            self.api.cluster.compact()
        else:
            assert self.fleet is not None
            self.fleet.management.restart_apiserver(self.fleet.management.compact)
            for path in (self.config_maps, self.machines):
                wait_until(partial(self._is_cached, path), what=f"a cache of {path}")

    def _is_cached(self, path: str) -> bool:
        """Return whether a list can come from the API server's cache, which fills after a start.

        A watch from a version before the cache's first one would end with "too old".
        """
        present = {"resourceVersionMatch": "NotOlderThan", "resourceVersion": "1"}
        return self.api.get(path, present, accepted=ANY).status == HTTPStatus.OK

    def watched(self, path: str, version: str, last: str, **query: str) -> list[tuple[str, Object]]:
        """Return the types and objects of events, up to an object of this name or the end."""
        options = {"resourceVersion": version, "timeoutSeconds": "60", **query}
        events = []
        with closing(self.stream.watch(path, options)) as lines:
            for line in lines:
                if not line:
                    continue
                event = json.loads(line)
                events.append((event["type"], event["object"]))
                if event["object"]["metadata"].get("name") == last:
                    break
        return events


def decoded(response: Response) -> Object:
    body: Object = json.loads(response.content)
    return body


@pytest.fixture(params=["fake", "real"])
def server(request: pytest.FixtureRequest, fleet: Fleet) -> Iterator[Server]:
    namespace = f"contract-{secrets.token_hex(4)}"
    if request.param == "fake":
        cluster = FakeCluster()
        client, stream = FakeClient(cluster), FakeStream(cluster)
        yield Server(api=client, stream=stream, fleet=None, namespace=namespace)
        return
    fleet.management.create_namespace(namespace)
    connection = parse_kubeconfig(fleet.management.admin_config.read_bytes())
    api = ApiClient("management", connection, user_agent="test")
    opened = ListWatch(api, Interruption(), Lock())
    yield Server(api=api, stream=opened, fleet=fleet, namespace=namespace)
    api.close()


def version(body: Object) -> str:
    text: str = body["metadata"]["resourceVersion"]
    return text


def test_created_object_has_metadata_of_the_server(server: Server) -> None:
    created = server.config_map()
    assert {"uid", "resourceVersion", "creationTimestamp"} <= created["metadata"].keys()
    assert created["metadata"]["namespace"] == server.namespace
    assert decoded(server.api.get(f"{server.config_maps}/a"))["data"] == created["data"]
    again = server.api.create(server.config_maps, {"metadata": {"name": "a"}}, accepted=ANY)
    assert again.status == CONFLICT
    assert decoded(again)["kind"] == "Status"


def test_dry_run_creates_nothing_and_generated_names_differ(server: Server) -> None:
    body = {"metadata": {"generateName": "made-"}}
    server.create(f"{server.config_maps}?dryRun=All", body)
    made = [server.create(server.config_maps, body)["metadata"]["name"] for _ in range(2)]
    assert sorted(made) == sorted(server.names())
    assert all(name.startswith("made-") for name in made)


def test_absent_objects_and_kinds_are_not_found(server: Server) -> None:
    path = f"{server.config_maps}/absent"
    unknown = f"/apis/example.com/v1/namespaces/{server.namespace}/things"
    answers = [
        server.api.get(path, accepted=ANY),
        server.api.replace(path, {"metadata": {"name": "absent"}}, accepted=ANY),
        server.api.merge_patch(path, {"data": {}}, accepted=ANY),
        server.api.delete(path, {}, accepted=ANY),
        server.api.get(unknown, accepted=ANY),
        server.api.create(unknown, {"metadata": {"name": "a"}}, accepted=ANY),
    ]
    assert [answer.status for answer in answers] == [404] * len(answers)


def test_served_kinds_are_discovered(server: Server) -> None:
    assert served_resources(server.api, "cluster.x-k8s.io")["Machine"] == MACHINES
    assert served_resources(server.api, "example.com") == {}


def test_object_is_replaced_under_its_version(server: Server) -> None:
    first = server.config_map()
    path = f"{server.config_maps}/a"
    second = decoded(server.api.replace(path, {**first, "data": {"three": "3"}}))
    assert second["data"] == {"three": "3"}
    assert second["metadata"]["uid"] == first["metadata"]["uid"]
    assert int(version(second)) > int(version(first))
    assert server.api.replace(path, first, accepted=ANY).status == CONFLICT
    other = {**second, "metadata": {**second["metadata"], "uid": "another"}}
    assert server.api.replace(path, other, accepted=ANY).status == CONFLICT
    assert decoded(server.api.get(path)) == second


def test_merge_patch_merges_and_removes(server: Server) -> None:
    first = server.config_map(labels={"a": "1"})
    path = f"{server.config_maps}/a"
    metadata = {"resourceVersion": version(first), "labels": {"b": "2"}}
    body = {"metadata": metadata, "data": {"one": None, "two": "x", "three": "3"}}
    second = decoded(server.api.merge_patch(path, body))
    assert second["data"] == {"two": "x", "three": "3"}
    assert second["metadata"]["labels"] == {"a": "1", "b": "2"}
    stale = {"resourceVersion": version(first)}
    other = {"uid": "another"}
    for claimed, status in ((stale, CONFLICT), (stale | other, CONFLICT), (other, INVALID)):
        answer = server.api.merge_patch(path, {"metadata": claimed}, accepted=ANY)
        assert answer.status == status
    assert decoded(server.api.get(path)) == second


def test_write_that_changes_nothing_makes_no_version(server: Server) -> None:
    first = server.config_map()
    again = server.api.merge_patch(f"{server.config_maps}/a", {"data": {"one": "1"}})
    assert version(decoded(again)) == version(first)


def test_status_is_written_by_its_subresource_alone(server: Server) -> None:
    wanted = objects.machine("c1", objects.Machine("m"), provider_id="test://m")
    written = {"nodeRef": {"name": "n"}}
    created = server.create(server.machines, {**wanted, "status": written})
    assert "nodeRef" not in created.get("status", {})
    path = f"{server.machines}/m"
    body = {"metadata": {"resourceVersion": version(created)}, "status": written}
    other_spec = {**body, "spec": {"providerID": "test://other"}}
    second = decoded(server.api.merge_patch(f"{path}/status", other_spec))
    assert second["status"]["nodeRef"] == {"name": "n"}
    assert second["spec"]["providerID"] == "test://m"
    third = decoded(server.api.merge_patch(path, {"status": {"nodeRef": {"name": "other"}}}))
    assert third["status"]["nodeRef"] == {"name": "n"}
    assert server.api.merge_patch(f"{path}/status", body, accepted=ANY).status == CONFLICT


def test_applied_condition_leaves_those_of_others(server: Server) -> None:
    server.create(server.machines, objects.machine("c1", objects.Machine("m"), provider_id="a://b"))
    path = f"{server.machines}/m/status"
    ready = {**condition("Ready"), "lastTransitionTime": "2026-11-22T11:00:00Z"}
    server.api.merge_patch(path, {"status": {"conditions": [ready]}})
    own = ready
    for reason in ("First", "Second"):
        own = {**ready, "type": "Own", "reason": reason}
        body = MACHINES.manifest(metadata={"name": "m"}, status={"conditions": [own]})
        written = decoded(server.api.apply(path, body, manager="test"))
        assert written["status"]["conditions"] == [ready, own]
    stale = {"name": "m", "resourceVersion": "1"}
    body = MACHINES.manifest(metadata=stale, status={"conditions": [own]})
    assert server.api.apply(path, body, manager="test", accepted=ANY).status == CONFLICT


def test_apply_creates_an_object_that_does_not_exist(server: Server) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "a"},
        "data": {"key": "value"},
    }
    for status in (201, 200):
        path = f"{server.config_maps}/a"
        written = server.api.apply(path, body, manager="test", accepted=ANY)
        assert (written.status, decoded(written)["data"]) == (status, {"key": "value"})


def test_uid_in_a_write_to_a_subresource_is_ignored(server: Server) -> None:
    """Only the resource version tells another object of the same name apart."""
    server.create(server.machines, objects.machine("c1", objects.Machine("m"), provider_id="a://b"))
    path, other = f"{server.machines}/m/status", {"name": "m", "uid": "another"}
    status = {"nodeRef": {"name": "n"}}
    server.api.merge_patch(path, {"metadata": other, "status": status})
    server.api.apply(path, MACHINES.manifest(metadata=other, status=status), manager="test")


def test_object_is_deleted_under_its_preconditions(server: Server) -> None:
    created = server.config_map()
    path = f"{server.config_maps}/a"
    right = {"uid": created["metadata"]["uid"], "resourceVersion": version(created)}
    for name in right:
        wrong = {**right, name: "1"}
        assert server.api.delete(path, wrong, accepted=ANY).status == CONFLICT
    assert server.api.delete(path, right).status == 200
    assert server.api.get(path, accepted=ANY).status == 404


def test_finalizer_keeps_a_deleted_object(server: Server) -> None:
    server.config_map(finalizers=["example.com/keep"])
    path = f"{server.config_maps}/a"
    server.api.delete(path, {})
    assert "deletionTimestamp" in decoded(server.api.get(path))["metadata"]
    server.api.merge_patch(path, {"metadata": {"finalizers": None}})
    assert server.api.get(path, accepted=ANY).status == 404


def test_list_is_read_in_pages_of_one_version(server: Server) -> None:
    for name in "abcde":
        server.config_map(name)
    first = decoded(server.api.get_page(server.config_maps, {"limit": "2"}))
    server.config_map("bb")
    server.api.delete(f"{server.config_maps}/c", {})
    further = {"limit": "500", "continue": first["metadata"]["continue"]}
    second = decoded(server.api.get_page(server.config_maps, further))
    pages = [[item["metadata"]["name"] for item in page["items"]] for page in (first, second)]
    assert pages == [["a", "b"], ["c", "d", "e"]]
    assert version(first) == version(second)
    assert not second["metadata"].get("continue")
    assert server.names() == ["a", "b", "bb", "d", "e"]


def test_list_that_has_expired_is_gone(server: Server) -> None:
    for name in "abc":
        server.config_map(name)
    first = decoded(server.api.get_page(server.config_maps, {"limit": "1"}))
    server.config_map("d")
    server.compact()
    further = {"limit": "1", "continue": first["metadata"]["continue"]}
    with pytest.raises(Expired):
        server.api.get_page(server.config_maps, further)


def test_selectors_select_objects(server: Server) -> None:
    server.config_map("a", labels={"rack": "1"})
    server.config_map("b", labels={"rack": "2"})
    server.config_map("c")
    assert server.names(labelSelector="rack") == ["a", "b"]
    assert server.names(labelSelector="rack=2") == ["b"]
    assert server.names(fieldSelector="metadata.name=c") == ["c"]
    kind, _, _ = server.config_maps.partition("/namespaces/")
    everywhere = decoded(server.api.get(f"{kind}/configmaps", {"labelSelector": "rack=1"}))
    own = [i for i in everywhere["items"] if i["metadata"]["namespace"] == server.namespace]
    assert len(own) == 1


def csr(server: Server) -> tuple[str, Object]:
    """Create a CSR that no signer decides; return its path and the object."""
    spec = {
        "signerName": f"example.com/{server.namespace}",
        "usages": ["client auth", "digital signature"],
        "request": request("node-1"),
    }
    name = f"{server.namespace}-{secrets.token_hex(4)}"
    kind = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest"}
    created = server.create(CSRS, {**kind, "metadata": {"name": name}, "spec": spec})
    return f"{CSRS}/{name}", created


def condition(kind: str) -> dict[str, str]:
    return {"type": kind, "status": "True", "reason": "R", "message": "m"}


def added(body: Object, kind: str) -> list[dict[str, object]]:
    """Return a JSON patch that adds the first condition under the version of a CSR."""
    path = "/metadata/resourceVersion"
    return [
        {"op": "replace", "path": path, "value": version(body)},
        {"op": "add", "path": "/status/conditions", "value": [condition(kind)]},
    ]


def test_json_patch_adds_conditions_under_a_version(server: Server) -> None:
    path, created = csr(server)
    approved = decoded(server.api.json_patch(f"{path}/approval", added(created, "Approved")))
    assert [c["type"] for c in approved["status"]["conditions"]] == ["Approved"]
    stale = server.api.json_patch(f"{path}/approval", added(created, "Approved"), accepted=ANY)
    assert stale.status == CONFLICT
    denied = {"op": "add", "path": "/status/conditions/-", "value": condition("Denied")}
    assert server.api.json_patch(f"{path}/approval", [denied], accepted=ANY).status == INVALID
    failed = {"op": "add", "path": "/status/conditions/-", "value": condition("Failed")}
    written = decoded(server.api.json_patch(f"{path}/status", [failed]))
    assert [c["type"] for c in written["status"]["conditions"]] == ["Approved", "Failed"]


def test_annotations_have_a_limit(server: Server) -> None:
    path, _ = csr(server)
    body = {"metadata": {"annotations": {"a": "x" * (256 << 10)}}}
    assert server.api.merge_patch(path, body, accepted=ANY).status == INVALID


def test_watch_continues_from_a_version(server: Server) -> None:
    before = server.config_map("before")
    created = server.config_map("a")
    path = f"{server.config_maps}/a"
    server.api.merge_patch(path, {"data": {"one": "x"}})
    server.api.delete(path, {})
    last = server.config_map("last")
    events = server.watched(server.config_maps, version(before), "last")
    assert [(kind, body["metadata"]["name"]) for kind, body in events] == [
        ("ADDED", "a"),
        ("MODIFIED", "a"),
        ("DELETED", "a"),
        ("ADDED", "last"),
    ]
    versions = [int(version(body)) for _, body in events]
    assert versions == sorted(set(versions))
    assert (versions[0], versions[-1]) == (int(version(created)), int(version(last)))


def test_watch_selects_objects(server: Server) -> None:
    before = server.config_map("before")
    server.config_map("a", labels={"rack": "1"})
    server.config_map("b")
    server.config_map("last", labels={"rack": "1"})
    found = server.watched(server.config_maps, version(before), "last", labelSelector="rack=1")
    assert [(kind, body["metadata"]["name"]) for kind, body in found] == [
        ("ADDED", "a"),
        ("ADDED", "last"),
    ]


def test_watch_from_a_version_that_expired_is_gone(server: Server) -> None:
    server.create(server.machines, objects.machine("c1", objects.Machine("m"), provider_id="a://b"))
    [(kind, status)] = server.watched(server.machines, "1", "m")
    assert (kind, status["code"]) == ("ERROR", GONE)


@pytest.mark.parametrize(
    ("path", "kind", "spec"),
    [
        ("authentication.k8s.io/v1/selfsubjectreviews", "SelfSubjectReview", {}),
        (
            "authorization.k8s.io/v1/selfsubjectaccessreviews",
            "SelfSubjectAccessReview",
            {"resourceAttributes": {"verb": "get", "resource": "secrets"}},
        ),
    ],
)
def test_review_is_answered(server: Server, path: str, kind: str, spec: Object) -> None:
    group, _, _ = path.rpartition("/")
    status = server.create(f"/apis/{path}", {"apiVersion": group, "kind": kind, "spec": spec})
    assert {"allowed", "userInfo"} & status["status"].keys()
    assert status["status"].get("allowed", True)
