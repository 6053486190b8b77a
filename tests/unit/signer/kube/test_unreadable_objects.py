"""An object that cannot be read is unreadable alone, in a list and in a watch."""

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import pytest

from common.errors import ApiServerUnavailable
from signer.kinds.decode import AnyObject, Source, decode, object_key
from signer.kinds.resources import NODES
from signer.kube.pages import list_objects, read_page
from signer.kube.unreadable import Unreadable
from signer.kube.watches.watch_event import read_event
from tests.builders.unreadable import STORED_LEVELS, with_free_json, with_managed_fields
from tests.fakes.cluster import FakeCluster, encoded
from tests.fakes.cluster_clients import FakeClient

Deepen = Callable[[dict[str, Any], int], dict[str, Any]]
MARGIN = 60
"""Levels. In Python 3.11, the frames of the caller count, too."""


@cache
def decoder_limit() -> int:
    """Return how many levels the decoder of this Python reads."""
    low, high = 1, 20_000
    while high - low > 1:
        middle = (low + high) // 2
        try:
            decode(encoded(with_managed_fields(named("a"), middle)), AnyObject)
            low = middle
        except ValueError:
            high = middle
    return low


def named(name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "team-b", "uid": "u", "resourceVersion": "7"}
    return {"apiVersion": "x/v1", "kind": "Thing", "metadata": metadata}


def is_readable(source: Source) -> bool:
    try:
        object_key(source)
    except ValueError:
        return False
    return True


depths = pytest.mark.parametrize(
    "levels",
    [
        lambda: decoder_limit() - MARGIN,
        lambda: decoder_limit() + MARGIN,
        lambda: 6_000,
        lambda: STORED_LEVELS,
    ],
    ids=["under the limit", "over the limit", "6,000", "9,995"],
)
places = pytest.mark.parametrize("deepen", [with_managed_fields, with_free_json])


@depths
@places
def test_page_has_all_its_objects_and_only_one_cannot_be_read(
    levels: Callable[[], int], deepen: Deepen
) -> None:
    deep = levels()
    items = [named("a"), deepen(named("b"), deep), named("c")]
    page = read_page(
        encoded({"metadata": {"resourceVersion": "9", "continue": "t"}, "items": items})
    )
    assert (page.metadata.resource_version, page.metadata.continue_) == ("9", "t")
    found = [is_readable(item) for item in page.items or ()]
    assert found == [True, deep < decoder_limit(), True]


@depths
@places
@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
def test_event_says_which_object_it_is_about(
    levels: Callable[[], int], deepen: Deepen, kind: str
) -> None:
    deep = levels()
    event = read_event(encoded({"type": kind, "object": deepen(named("b"), deep)}))
    assert (event.type, event.key, event.version) == (kind, "team-b/b", "7")
    assert is_readable(event.object) == (deep < decoder_limit())


def test_list_names_what_it_leaves_out() -> None:
    """The operators' commands ended at an object of any tenant (exit status 3)."""
    cluster, left_out = FakeCluster(), list[Unreadable]()
    path = NODES.collection_path()
    cluster.objects[f"{path}/b"] = with_managed_fields(named("b"))
    cluster.put(path, {"metadata": {"name": "a"}}, {"metadata": {"name": "c"}})
    deep = cluster.objects[f"{path}/b"]["metadata"]["managedFields"][0]["fieldsV1"]["f:a"]
    assert not is_readable(b'{"metadata":' + bytes(deep) + b"}")
    client = FakeClient(cluster)
    found = list(list_objects(client, path, _strict_key, page_size=2, left_out=left_out))
    assert found == ["a", "c"]
    [each] = left_out
    assert str(each) == "Thing team-b/b: deep"
    with pytest.raises(
        ApiServerUnavailable, match=r"an object of .*/nodes cannot be read"
    ) as caught:
        list(list_objects(client, path, _strict_key))
    assert caught.value.detail == "Thing team-b/b: deep"


def _strict_key(source: Source) -> str:
    """Refuse depth as the decoder of any Python does."""
    if b"[" * 2000 in bytes(source if isinstance(source, msgspec.Raw) else b""):
        raise ValueError("deep")
    return object_key(source)


@pytest.mark.parametrize("length", [1 << 10, 1 << 20])
def test_page_that_was_cut_off_is_no_shorter_page(length: int) -> None:
    items = [named("a"), with_managed_fields(named("b")), {**named("c"), "x": "<" * (2 << 20)}]
    content = encoded({"metadata": {"resourceVersion": "9"}, "items": items})
    with pytest.raises(ValueError, match=r".+"):
        read_page(content[:length])


def test_object_of_escapes_is_read() -> None:
    """1.2 MB of `<` are 7.2 MB of JSON."""
    escaped = msgspec.Raw(b'"' + b"\\u003c" * 1_200_000 + b'"')
    event = read_event(encoded({"type": "ADDED", "object": {**named("a"), "spec": escaped}}))
    assert is_readable(event.object)
