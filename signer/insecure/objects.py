"""Lists of one API server, read page by page and object by object."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, TypeVar

from common.errors import ApiServerUnavailable
from signer.kube.client import Expired
from signer.kube.decode import Source
from signer.kube.pages import PageReader, list_pages

V = TypeVar("V")

_PAGE_SIZE: Final = 100
_MAX_OBJECTS: Final = 10_000
"""Items of one list. A namespace or cluster with more is not one for development."""
_NO_QUERY: Final[Mapping[str, str]] = MappingProxyType({})


def list_objects(
    api: PageReader,
    path: str,
    read: Callable[[Source], V],
    *,
    query: Mapping[str, str] = _NO_QUERY,
    page_size: int = _PAGE_SIZE,
) -> Iterator[V]:
    """Yield each object of a list.

    Raises `ApiServerUnavailable`, also when one object cannot be read or there are too many: a part
    of a list could lack the object that decides.
    """
    count = 0
    try:
        for page in list_pages(api, path, page_size, query):
            for item in page.items or ():
                count += 1
                if count > _MAX_OBJECTS:
                    raise ApiServerUnavailable(f"the list {path} has over {_MAX_OBJECTS} objects")
                yield _decoded(item, read)
    except Expired as e:
        raise ApiServerUnavailable(f"the list {path} changed while it was read") from e


def _decoded(item: Source, read: Callable[[Source], V]) -> V:
    try:
        return read(item)
    except ValueError as e:
        message = "an object of the API server cannot be read"
        raise ApiServerUnavailable(message, detail=str(e)[:500]) from e
