"""Access reviews: who asks for a certificate, and whether the API server decided."""

from contextlib import nullcontext

import pytest

from signer.kube.access_review import read_decided_review, read_requester


@pytest.mark.parametrize("allowed", [True, False])
def test_decided_review_is_read(*, allowed: bool) -> None:
    assert read_decided_review({"status": {"allowed": allowed}}) is allowed


def test_right_counts_although_another_authorizer_has_failed() -> None:
    assert read_decided_review({"status": {"allowed": True, "evaluationError": "role not found"}})


def test_failed_authorizer_is_no_refusal() -> None:
    """The API server answers so when an authorizer that could allow it does not answer."""
    with pytest.raises(ValueError, match="not complete: webhook"):
        read_decided_review({"status": {"allowed": False, "evaluationError": "webhook"}})


def test_review_is_about_the_whole_requester_of_the_csr() -> None:
    """Authorizers other than RBAC also read `uid` and `extra`."""
    spec = {
        "username": "system:node:n",
        "uid": "7",
        "groups": ["system:nodes", "system:authenticated"],
        "extra": {"authentication.kubernetes.io/credential-id": ["X509SHA256=00"]},
    }
    assert read_requester({"metadata": {"uid": "u"}, "spec": {**spec, "request": "AA=="}}) == (
        "u",
        {
            "user": "system:node:n",
            "uid": "7",
            "groups": spec["groups"],
            "extra": spec["extra"],
        },
    )


def test_requester_may_have_a_name_alone() -> None:
    requester = read_requester({"metadata": {"uid": "u"}, "spec": {"username": "alice"}})
    assert requester == ("u", {"user": "alice", "uid": "", "groups": [], "extra": {}})


def test_requester_that_takes_much_memory_is_unreadable() -> None:
    """A worker holds it, and the review with it, until a hostile API server answers."""
    groups = [f"{number} " + "g" * 4000 + "\U0001f600" for number in range(5)]
    for count, large in ((3, False), (5, True)):
        raises = pytest.raises(ValueError, match="takes over 64 KiB of memory")
        with raises if large else nullcontext():
            read_requester({"metadata": {"uid": "u"}, "spec": {"groups": groups[:count]}})
