"""Share of a requester in the memory for pending CSRs."""

from dataclasses import replace

import pytest

from signer.controller.requester_share import MAX_PENDING_BYTES, RequesterShares
from signer.errors import TooManyPendingRequests
from tests.builders.scenario import Scenario

CSR = Scenario().offer_csr()
LARGE = replace(CSR, request=bytes(MAX_PENDING_BYTES // 2))


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
    shares.update(None, replace(LARGE, annotations={"a": "x" * (MAX_PENDING_BYTES // 2)}))
    with pytest.raises(TooManyPendingRequests):
        shares.verify_share(CSR.username)


def test_small_requests_count_with_the_memory_that_each_of_them_takes() -> None:
    shares = RequesterShares()
    for _ in range(MAX_PENDING_BYTES // 2048):
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
