"""Policy objects that no signer reads: its policies are in a file."""

import io
from argparse import Namespace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from signer.operator_cli.management import ManagementApi
from signer.operator_cli.policies import warn_if_unread
from signer.operator_cli.session import Session

STATUS = {"conditions": [{"type": "Ready", "status": "False"}]}


class Management:
    """The management cluster with these policies."""

    def __init__(self, policies: list[dict[str, Any]]) -> None:
        self.policies = policies

    def list_objects(self, path: str) -> list[dict[str, Any]]:
        assert path.endswith("/kubeletattestationpolicies")
        return self.policies


@pytest.mark.parametrize(
    ("policies", "warned"),
    [
        ([], True),
        ([{"spec": {}}], True),
        ([{"spec": {}, "status": {}}], True),
        ([{"spec": {}}, {"spec": {}, "status": STATUS}], False),
    ],
    ids=["no object", "no status", "empty status", "status of one"],
)
def test_objects_without_a_status_are_a_warning(
    policies: list[dict[str, Any]],
    warned: bool,  # noqa: FBT001 - a parameter of the case
) -> None:
    """`explain` and `policy check` said that no policy is there; the signer had a file."""
    streams = io.StringIO(), io.StringIO(), io.StringIO()
    api = cast("ManagementApi", Management(policies))
    warn_if_unread(Session(Namespace(), lambda: api, datetime.now(UTC), *streams))
    assert ("a signer with --policy reads a file" in streams[2].getvalue()) is warned
