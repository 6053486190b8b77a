"""Who may read the metrics: decided by two reviews, cached, and limited."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, cast

import pytest

from common.errors import ApiServerUnavailable
from signer.controller import metrics_access
from signer.controller.metrics_access import MetricsAccess
from signer.kube.client import ApiClient, Response

HEADER = "Bearer good"
USER = {"username": "prometheus", "uid": "u", "groups": ["g"], "extra": {"k": ["v"]}}


@dataclass
class Api:
    """An API server with one token, `good`, and its answer to access reviews."""

    allowed: bool = True
    away: bool = False
    reviews: list[dict[str, Any]] = field(default_factory=list)
    during: Callable[[], object] = lambda: None
    seconds: float = 0.0

    def create(self, _: str, body: dict[str, Any]) -> Response:
        if self.away:
            raise ApiServerUnavailable("away")
        self.reviews.append(body)
        self.during()
        status: dict[str, Any] = {"allowed": self.allowed}
        if body["kind"] == "TokenReview":
            good = body["spec"]["token"] == "good"
            status = {"authenticated": True, "user": USER} if good else {"error": "invalid token"}
        return Response(status=201, content=json.dumps({"status": status}).encode())


def access(api: Api) -> MetricsAccess:
    return MetricsAccess(cast("ApiClient", api), "/metrics", lambda: api.seconds)


def test_reader_is_authenticated_and_authorized() -> None:
    api = Api()
    assert access(api).check(HEADER) is HTTPStatus.OK
    _, review = api.reviews
    assert review["spec"] == {
        "user": "prometheus",
        "uid": "u",
        "groups": ["g"],
        "extra": {"k": ["v"]},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }


def test_reader_without_the_right_is_forbidden() -> None:
    assert access(Api(allowed=False)).check(HEADER) is HTTPStatus.FORBIDDEN


@pytest.mark.parametrize("header", ["", "Bearer ", "Basic good", "good", "bearer good"])
def test_request_without_a_token_costs_no_review(header: str) -> None:
    api = Api()
    assert access(api).check(header) is HTTPStatus.UNAUTHORIZED
    assert api.reviews == []


def test_token_that_is_refused_is_unauthorized() -> None:
    api = Api()
    assert access(api).check("Bearer bad") is HTTPStatus.UNAUTHORIZED
    assert [review["kind"] for review in api.reviews] == ["TokenReview"]


def test_result_is_cached_for_a_minute() -> None:
    api = Api()
    checked = access(api)
    for seconds, reviews in ((0.0, 2), (59.0, 2), (61.0, 4)):
        api.seconds = seconds
        assert checked.check(HEADER) is HTTPStatus.OK
        assert len(api.reviews) == reviews


def test_outage_is_neither_cached_nor_a_refusal() -> None:
    api = Api(away=True)
    checked = access(api)
    assert checked.check(HEADER) is HTTPStatus.SERVICE_UNAVAILABLE
    api.away = False
    assert checked.check(HEADER) is HTTPStatus.OK


def test_reviews_at_one_time_are_limited() -> None:
    """Any client that reaches the address may send tokens."""
    api = Api()
    checked = access(api)
    inner: list[HTTPStatus] = []

    def nested() -> None:
        if len(api.reviews) <= metrics_access._MAX_REVIEWS:
            inner.append(checked.check(f"Bearer {len(api.reviews)}"))

    api.during = nested
    checked.check(HEADER)
    assert HTTPStatus.SERVICE_UNAVAILABLE in inner


def test_cache_of_results_is_bounded() -> None:
    api = Api()
    checked = access(api)
    for number in range(metrics_access._MAX_CACHED + 10):
        checked.check(f"Bearer {number}")
    assert len(checked._cached) == metrics_access._MAX_CACHED
