"""Who may read the metrics: decided by two reviews, cached, and limited."""

from http import HTTPStatus
from math import inf
from typing import Any

import pytest

from common.errors import ApiServerUnavailable
from signer.controller.observability import metrics_access
from signer.controller.observability.metrics_access import MetricsAccess
from signer.kube.transport.client import Request
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import FakeClient
from tests.fakes.cluster_objects import Object

HEADER = "Bearer good"
USER = {"username": "prometheus", "uid": "u", "groups": ["g"], "extra": {"k": ["v"]}}


class Api(FakeCluster):
    """An API server with one token, `good`, and its answer to access reviews."""

    def __init__(self, *, allowed: bool = True) -> None:
        super().__init__(review=self.status_of)
        self.allowed = allowed
        self.seconds = 0.0

    def status_of(self, body: Object) -> Object:
        if body["kind"] != "TokenReview":
            return {"allowed": self.allowed}
        good = body["spec"]["token"] == "good"
        return {"authenticated": True, "user": USER} if good else {"error": "invalid token"}

    @property
    def reviews(self) -> list[Any]:
        return [request.body for request in self.requests]


def access(api: Api) -> MetricsAccess:
    return MetricsAccess(FakeClient(api), "/metrics", lambda: api.seconds)


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
    api = Api()
    api.intercept(ApiServerUnavailable("away"))
    checked = access(api)
    assert checked.check(HEADER) is HTTPStatus.SERVICE_UNAVAILABLE
    assert checked.check(HEADER) is HTTPStatus.OK


def test_reviews_at_one_time_are_limited() -> None:
    """Any client that reaches the address may send tokens."""
    api = Api()
    checked = access(api)
    inner: list[HTTPStatus] = []

    def nested(_: Request) -> None:
        if len(api.reviews) <= metrics_access._MAX_REVIEWS:
            inner.append(checked.check(f"Bearer {len(api.reviews)}"))

    api.intercept(nested, times=inf)
    checked.check(HEADER)
    assert HTTPStatus.SERVICE_UNAVAILABLE in inner


def test_cache_of_results_is_bounded() -> None:
    api = Api()
    checked = access(api)
    for number in range(metrics_access._MAX_CACHED + 10):
        checked.check(f"Bearer {number}")
    assert len(checked._cached) == metrics_access._MAX_CACHED
