"""Decides who may read `/metrics`, as the API server of the management cluster says.

As controller-runtime does with `WithAuthenticationAndAuthorization`: a TokenReview of the bearer
token, then a SubjectAccessReview for `get` on the path. Each result is cached for a minute. Any
client that reaches the address may send tokens, so at most two reviews are made at a time.
"""

from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from http import HTTPStatus
from threading import BoundedSemaphore, Lock
from typing import Final

from common.errors import Unavailable
from signer.kinds.resources import SUBJECT_ACCESS_REVIEWS, Resource
from signer.kube.access_review import read_decided_review, read_token_review
from signer.kube.transport.client import ApiClient

_TOKEN_REVIEWS: Final = Resource(
    "authentication.k8s.io", "v1", "TokenReview", "tokenreviews", namespaced=False
)
_SCHEME: Final = "Bearer "
_CACHE_SECONDS: Final = 60.0
_MAX_CACHED: Final = 64
_MAX_REVIEWS: Final = 2


class MetricsAccess:
    """Authenticates and authorizes readers of one path; any thread may call `check`."""

    def __init__(self, api: ApiClient, path: str, monotonic: Callable[[], float]) -> None:
        self._api = api
        self._path = path
        self._monotonic = monotonic
        self._lock = Lock()
        self._cached: OrderedDict[bytes, tuple[HTTPStatus, float]] = OrderedDict()
        """Result and end of its validity, by the digest of the token."""
        self._reviews = BoundedSemaphore(_MAX_REVIEWS)

    def check(self, authorization: str) -> HTTPStatus:
        """Return OK, or the status that refuses a request with this `Authorization` header."""
        token = authorization.removeprefix(_SCHEME).strip()
        if not authorization.startswith(_SCHEME) or not token:
            return HTTPStatus.UNAUTHORIZED
        digest = sha256(token.encode()).digest()
        with self._lock:
            status, until = self._cached.get(digest, (HTTPStatus.UNAUTHORIZED, 0.0))
        if self._monotonic() < until:
            return status
        if not self._reviews.acquire(blocking=False):
            return HTTPStatus.SERVICE_UNAVAILABLE
        try:
            status = self._review(token)
        except Unavailable:
            return HTTPStatus.SERVICE_UNAVAILABLE
        finally:
            self._reviews.release()
        with self._lock:
            self._cached[digest] = status, self._monotonic() + _CACHE_SECONDS
            self._cached.move_to_end(digest)
            if len(self._cached) > _MAX_CACHED:
                self._cached.popitem(last=False)
        return status

    def _review(self, token: str) -> HTTPStatus:
        """Raise `Unavailable` if the API server does not decide."""
        body = _TOKEN_REVIEWS.manifest(spec={"token": token})
        path = _TOKEN_REVIEWS.collection_path()
        subject = self._api.create(path, body).read(read_token_review)
        if subject is None:
            return HTTPStatus.UNAUTHORIZED
        attributes = {"nonResourceAttributes": {"path": self._path, "verb": "get"}}
        access = SUBJECT_ACCESS_REVIEWS.manifest(spec={**subject, **attributes})
        path = SUBJECT_ACCESS_REVIEWS.collection_path()
        allowed = self._api.create(path, access).read(read_decided_review)
        return HTTPStatus.OK if allowed else HTTPStatus.FORBIDDEN
