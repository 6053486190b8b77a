"""Lists in pages, each within the size limit of an answer."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Protocol

import msgspec

from common.errors import ApiServerUnavailable
from signer.kube.client import PageTooLarge, Response
from signer.kube.decode import Fields, MaybeText, Source, decode

_MAX_PAGES: Final = 10_000
_MAX_ITEMS: Final = 500
"""Of one page; no caller asks for more. A list of many tiny items would take much memory."""


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


def list_pages(
    reader: PageReader, path: str, limit: int, query: Mapping[str, str]
) -> Iterator[Page]:
    """Yield the pages of a list, with `limit` objects each, or fewer where they are large.

    Raises `Expired` when the server can no longer continue the list, and `ApiServerUnavailable`.
    """
    further: dict[str, str] = {}
    for _ in range(_MAX_PAGES):
        try:
            response = reader.get_page(path, {**query, "limit": str(limit), **further})
        except PageTooLarge as e:
            if limit == 1:
                raise ApiServerUnavailable("an object of the API server is too large") from e
            limit = max(1, limit // 4)
            continue
        page = response.read(_read_page)
        yield page
        if not page.metadata.continue_:
            return
        further = {"continue": page.metadata.continue_}
    raise ApiServerUnavailable("the API server's list has no end")


def _read_page(source: Source) -> Page:
    return decode(source, Page)
