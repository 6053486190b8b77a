"""Share of a requester in the memory for pending CSRs."""

from dataclasses import replace

import pytest

from common.evidence import MAX_SIZE_WITH_EVENT_LOG
from signer.controller.reconcile.limits import MAX_BYTES, MAX_BYTES_OF_NODE, RequesterShares
from signer.errors import TooManyPendingRequests
from tests.builders.scenario import Scenario

CSR = Scenario().offer_csr()
LARGE = replace(CSR, request=bytes(MAX_BYTES // 2))


def test_a_share_counts_every_pending_request() -> None:
    shares = RequesterShares()
    shares.update(None, LARGE)
    shares.verify_share(CSR.username)
    shares.update(None, LARGE)
    with pytest.raises(TooManyPendingRequests):
        shares.verify_share(CSR.username)
    shares.verify_share("system:node:another")


def test_annotations_count() -> None:
    shares = RequesterShares()
    shares.update(None, replace(LARGE, annotations_size=MAX_BYTES // 2))
    with pytest.raises(TooManyPendingRequests):
        shares.verify_share(CSR.username)


def test_small_requests_count_with_the_memory_that_each_of_them_takes() -> None:
    shares = RequesterShares()
    for _ in range(MAX_BYTES // 2048):
        shares.update(None, replace(CSR, request=b"x"))
    with pytest.raises(TooManyPendingRequests):
        shares.verify_share(CSR.username)


def test_a_request_that_changed_counts_once_and_one_that_is_gone_counts_no_more() -> None:
    shares = RequesterShares()
    shares.update(None, LARGE)
    for _ in range(10):
        shares.update(LARGE, LARGE)
    shares.verify_share(CSR.username)
    shares.update(LARGE, None)
    assert not shares._bytes


def test_a_node_has_a_smaller_share_than_a_bootstrap_token() -> None:
    """A pool of machines may share a token; a node has one or two requests at a time."""
    shares = RequesterShares()
    for username in ("system:node:a", "system:bootstrap:abcdef"):
        shares.update(None, replace(CSR, username=username, request=bytes(MAX_BYTES_OF_NODE)))
    shares.verify_share("system:bootstrap:abcdef")
    with pytest.raises(TooManyPendingRequests):
        shares.verify_share("system:node:a")


def test_two_answers_with_the_largest_event_log_fit_in_the_share_of_a_node() -> None:
    size = MAX_SIZE_WITH_EVENT_LOG * 4 // 3 * 65 // 64  # base64 in lines of 64 characters
    shares = RequesterShares()
    for _ in range(2):
        shares.update(None, replace(CSR, username="system:node:a", request=bytes(size)))
    shares.verify_share("system:node:a")
