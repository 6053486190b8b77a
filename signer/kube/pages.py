"""Lists in pages, each within the size limit of an answer."""

import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Annotated, Final, Protocol, TypeVar

import msgspec

from common.errors import ApiServerUnavailable
from signer.kinds.decode import Fields, MaybeText, Source, decode
from signer.kube.scan import elements, members
from signer.kube.transport.client import Expired, PageTooLarge, Response
from signer.kube.unreadable import Unreadable, describe_unreadable

V = TypeVar("V")

_PAGE_SIZE: Final = 250
"""Objects of the first answer."""
_MAX_PAGES: Final = 10_000
_MAX_OBJECTS: Final = 10_000
"""Objects of one list of an API server that may be hostile."""
UNLIMITED: Final = sys.maxsize
"""For lists of the management cluster: only the number of pages is limited."""
_MAX_ITEMS: Final = 500
"""Items of one page; no caller asks for more. A list of many tiny items would take much memory."""
_STEP: Final = 4
"""By which a page grows or shrinks."""
_SMALL: Final = (1 << 20) // _STEP
"""Bytes of an answer after which the next page grows: `_STEP` times as many objects of the same
size are 1 MiB, which no size limit of an answer refuses."""
_NO_QUERY: Final[Mapping[str, str]] = MappingProxyType({})


class PageReader(Protocol):
    """The part of an API server that lists need."""

    def get_page(self, path: str, query: Mapping[str, str]) -> Response:
        """Read one page of a list. Raises `Expired` or `PageTooLarge`."""


class ListMeta(Fields):
    """Where a list was taken, and how to continue it."""

    resource_version: MaybeText = None
    continue_: Annotated[str, msgspec.Meta(max_length=64 << 10)] | None = msgspec.field(
        default=None, name="continue"
    )


class Page(Fields):
    """One page of a list; its items are decoded one by one, so that each can fail alone."""

    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: Annotated[list[msgspec.Raw], msgspec.Meta(max_length=_MAX_ITEMS)] | None = None


def read_page(content: Source) -> Page:
    """Return a page, also one that the decoder refuses for an object in it; raises `ValueError`.

    That object is an item like the others: whoever reads the items finds out which one it is.
    """
    try:
        return decode(content, Page)
    except ValueError:
        if not isinstance(content, bytes):
            raise
        parts = members(content)
        items = list(islice(elements(parts.get("items", b"[]")), _MAX_ITEMS + 1))
        if len(items) > _MAX_ITEMS:
            raise
        return Page(
            metadata=decode(parts.get("metadata", b"{}"), ListMeta),
            items=[msgspec.Raw(item) for item in items],
        )


class Pager:
    """Which page of a list to read next, with `limit` objects at first.

    After a small answer it asks for more objects, up to `_MAX_ITEMS`. After one that exceeds the
    size limit it asks for fewer, and never again for as many in this list. So large objects between
    small ones cost four refused answers at most. Reading is the caller's: on a thread, or on an
    event loop.
    """

    def __init__(self, limit: int, query: Mapping[str, str]) -> None:
        self._limit = limit
        self._max_limit = _MAX_ITEMS
        self._query = query
        self._continue: str | None = ""
        """Where the next page begins; empty for the first, `None` after the last."""
        self._requests = 0

    def next_query(self) -> Mapping[str, str] | None:
        """Return the query of the next page, `None` after the last.

        Raises `ApiServerUnavailable` when the list has no end.
        """
        if self._continue is None:
            return None
        if self._requests >= _MAX_PAGES:
            raise ApiServerUnavailable("the API server's list has no end")
        self._requests += 1
        further = {"continue": self._continue} if self._continue else {}
        return {**self._query, "limit": str(self._limit), **further}

    def shrink(self, error: PageTooLarge) -> None:
        """Ask for fewer objects. Raises `ApiServerUnavailable` where it was one already."""
        if self._limit == 1:
            raise ApiServerUnavailable("an object of the API server is too large") from error
        self._limit = self._max_limit = max(1, self._limit // _STEP)

    def read(self, response: Response) -> Page:
        """Return the page.

        Raises `ApiServerUnavailable` when it cannot be read, and when it is empty although the list
        continues: a list of such pages would have no end, and no limit on objects would notice.
        """
        page = response.read(read_page)
        self._continue = page.metadata.continue_ or None
        if self._continue is not None and not page.items:
            raise ApiServerUnavailable("the API server's list continues after an empty page")
        if len(response.content) < _SMALL:
            self._limit = min(_STEP * self._limit, self._max_limit)
        return page


def list_pages(
    reader: PageReader, path: str, limit: int, query: Mapping[str, str]
) -> Iterator[Page]:
    """Yield the pages of a list, with `limit` objects in the first; see `Pager`.

    Raises `Expired` when the server can no longer continue the list, and `ApiServerUnavailable`.
    """
    pager = Pager(limit, query)
    while (page_query := pager.next_query()) is not None:
        try:
            response = reader.get_page(path, page_query)
        except PageTooLarge as error:
            pager.shrink(error)
        else:
            yield pager.read(response)


def list_objects(  # noqa: PLR0913 - the last four are options
    reader: PageReader,
    path: str,
    read: Callable[[Source], V | None],
    *,
    query: Mapping[str, str] = _NO_QUERY,
    page_size: int = _PAGE_SIZE,
    max_objects: int | None = None,
    left_out: list[Unreadable] | None = None,
) -> Iterator[V]:
    """Yield the value of each object of a list; leave out objects whose value is `None`.

    An object that cannot be read is added to `left_out`. Without that it raises
    `ApiServerUnavailable`, as when the server can no longer continue the list, and when there are
    too many objects: a part of a list could lack the object that decides. All callers try again
    later.
    """
    count, limit = 0, max_objects or _MAX_OBJECTS
    try:
        for page in list_pages(reader, path, page_size, query):
            for item in page.items or ():
                count += 1
                if count > limit:
                    raise ApiServerUnavailable(f"the list {path} has over {limit} objects")
                try:
                    value = read(item)
                except ValueError as error:
                    found = describe_unreadable(item, error)
                    if left_out is None:
                        raise _unreadable(path, found) from error
                    left_out.append(found)
                    continue
                if value is not None:
                    yield value
    except Expired as error:
        raise ApiServerUnavailable(f"the list {path} changed while it was read") from error


def _unreadable(path: str, found: Unreadable) -> ApiServerUnavailable:
    return ApiServerUnavailable(f"an object of {path} cannot be read", detail=str(found)[:500])
