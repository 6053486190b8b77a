"""Pages grow after small answers, and large objects cost no more than some refused answers."""

import itertools
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from common.errors import ApiServerUnavailable
from signer.fairness.memory_budget import HeldBytes, MemoryBudget, MemoryShare
from signer.kinds.decode import object_key
from signer.kinds.resources import NODES
from signer.kube.pages import list_objects, list_pages
from signer.kube.transport.client import (
    MAX_WORKLOAD_PAGE,
    MAX_WORKLOAD_RESPONSE,
    ApiClient,
    PageTooLarge,
    Response,
)
from tests.fakes.api_server import Answering, api_server
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient

PATH = "/api/v1/things"
MAX_RESPONSE = 4 << 20
SMALL, HUGE = 7 << 10, 3 << 19
"""Bytes of a usual CSR, and of the largest one."""
PART = 64 << 10
"""Bytes that are sent at once."""


class Listing:
    """A list of objects with these sizes, of which answers above the size limit are refused."""

    def __init__(self, sizes: Sequence[int]) -> None:
        self._sizes = sizes
        self.limits: list[int] = []
        self.refused = 0

    def get_page(self, path: str, query: Mapping[str, str]) -> Response:
        assert path == PATH
        start, limit = int(query.get("continue", "0")), int(query["limit"])
        self.limits.append(limit)
        if sum(self._sizes[start : start + limit]) > MAX_RESPONSE:
            self.refused += 1
            raise PageTooLarge
        return Response(status=200, content=b"".join(self.answer(start, limit)))

    def answer(self, start: int, limit: int) -> Iterator[bytes]:
        """Yield the parts of an answer."""
        end = start + limit
        more = str(end) if end < len(self._sizes) else ""
        yield b'{"metadata":{"resourceVersion":"1","continue":"%s"},"items":[' % more.encode()
        for number, size in enumerate(self._sizes[start:end]):
            yield b',"' if number else b'"'
            yield from itertools.repeat(b"x" * PART, size // PART)
            yield b"x" * (size % PART) + b'"'
        yield b"]}"

    def read(self) -> int:
        """Read the list in pages of 4 objects at first; return the number of objects."""
        return sum(len(page.items or ()) for page in list_pages(self, PATH, 4, {}))


def test_pages_grow_after_small_answers() -> None:
    """2,000 CSRs in pages of 4 cost the API server more than a second of CPU time."""
    listing = Listing([SMALL] * 2000)
    assert listing.read() == 2000
    assert listing.limits[:4] == [4, 16, 64, 64]
    assert len(listing.limits) < 40
    assert listing.refused == 0


def test_pages_of_tiny_objects_grow_to_the_largest_page() -> None:
    listing = Listing([1] * 2000)
    assert listing.read() == 2000
    assert listing.limits == [4, 16, 64, 256, 500, 500, 500, 500]


@pytest.mark.parametrize("items", [b"[]", b"null"])
def test_list_that_continues_after_an_empty_page_is_refused(items: bytes) -> None:
    """No limit on objects ends such a list; 10,000 pages may take days."""
    cluster = FakeCluster()
    cluster.intercept((200, b'{"metadata":{"continue":"1"},"items":%s}' % items))
    with pytest.raises(ApiServerUnavailable, match="continues after an empty page"):
        list(list_pages(FakeClient(cluster), PATH, 4, {}))


def test_part_of_a_list_is_no_list() -> None:
    """The object that decides may be in the rest, which the server can no longer give."""
    cluster = FakeCluster()
    cluster.intercept((200, {"metadata": {"continue": "1"}, "items": [1]}))
    with pytest.raises(ApiServerUnavailable, match="changed while it was read"):
        list(list_objects(FakeClient(cluster), NODES.collection_path(), bool))


def test_pages_of_large_objects_do_not_grow() -> None:
    listing = Listing([100 << 10] * 20)
    assert listing.read() == 20
    assert listing.limits == [4] * 5


@pytest.mark.parametrize("pattern", [[SMALL] * 100 + [HUGE] * 3, [1] * 400 + [HUGE] * 10])
def test_huge_objects_between_small_ones_cost_few_refused_answers(pattern: list[int]) -> None:
    """Otherwise a page would grow before each group of them, and be refused each time."""
    listing = Listing(pattern * 4)
    assert listing.read() == len(pattern * 4)
    assert 1 <= listing.refused <= 4


def test_huge_objects_after_small_ones_take_the_memory_of_one_answer(tmp_path: Path) -> None:
    """They are asked for in a page that would take 18 MiB."""
    listing = Listing([1] * 400 + [HUGE] * 12)

    def give(answering: Answering) -> None:
        query = parse_qs(urlsplit(answering.path).query)
        start, limit = int(query.get("continue", ["0"])[0]), int(query["limit"][0])
        with suppress(OSError):  # the client closes the connection
            answering.give_chunks(listing.answer(start, limit))

    with api_server(give, tmp_path) as server:
        api = ApiClient("fake", server.connection(), user_agent="test", max_response=MAX_RESPONSE)
        tracemalloc.start()
        objects = sum(len(page.items or ()) for page in list_pages(api, PATH, 4, {}))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        api.close()
    limits = [
        int(parse_qs(urlsplit(request.path).query)["limit"][0]) for request in server.requests
    ]
    assert objects == 412
    assert limits[:7] == [4, 16, 64, 256, 500, 125, 31]
    assert most < 3 * MAX_RESPONSE


@pytest.mark.parametrize("held", [64 << 20, 8 << 20])
def test_object_of_escapes_is_read_alone(held: int, tmp_path: Path) -> None:
    """1.2 MB of `<` in a CSR are 7.2 MB of JSON, and count for the tenant while they are read."""
    escapes = b'{"metadata":{"name":"large"},"x":"' + b"\\u003c" * 1_200_000 + b'"}'
    items = [b'{"metadata":{"name":"small"}}', escapes, b'{"metadata":{"name":"other"}}']

    def give(answering: Answering) -> None:
        query = parse_qs(urlsplit(answering.path).query)
        start, limit = int(query.get("continue", ["0"])[0]), int(query["limit"][0])
        end = start + limit
        more = b'"continue":"%d",' % end if end < len(items) else b""
        page = b",".join(items[start:end])
        with suppress(OSError):  # the client closes the connection
            answering.give(b'{"metadata":{%s"resourceVersion":"1"},"items":[%s]}' % (more, page))

    budget = MemoryBudget(per_tenant=held)
    other = HeldBytes(budget, "team-a", 0)
    other.resize(2 << 20)
    with api_server(give, tmp_path) as server:
        api = ApiClient(
            "fake",
            server.connection(),
            user_agent="test",
            max_response=MAX_WORKLOAD_RESPONSE,
            max_page=MAX_WORKLOAD_PAGE,
            reading=MemoryShare(budget, "team-a"),
        )
        names = list_objects(api, PATH, object_key, page_size=4)
        if held > len(escapes) + other.size:
            assert list(names) == ["small", "large", "other"]
        else:
            with pytest.raises(ApiServerUnavailable, match="exceeds its memory budget"):
                list(names)
        api.close()
    assert budget.used() == {"team-a": other.size}
