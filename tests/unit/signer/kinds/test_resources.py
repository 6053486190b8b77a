"""Paths of resources."""

import pytest

from signer.kinds.resources import CSRS, SECRETS


def test_paths_name_group_version_and_namespace() -> None:
    assert CSRS.collection_path() == "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    assert SECRETS.collection_path() == "/api/v1/secrets"
    assert SECRETS.object_path("s", "team-a") == "/api/v1/namespaces/team-a/secrets/s"
    assert CSRS.object_path("a", subresource="status") == f"{CSRS.collection_path()}/a/status"


@pytest.mark.parametrize(
    ("name", "segment"),
    [("../nodes/n", "..%2Fnodes%2Fn"), ("a?dryRun=All", "a%3FdryRun%3DAll"), ("a%2Fb", "a%252Fb")],
)
def test_no_name_leads_to_another_path(name: str, segment: str) -> None:
    """A tenant may have written the name of an object or of a namespace."""
    path = f"/api/v1/namespaces/{segment}/secrets/{segment}"
    assert SECRETS.object_path(name, name) == path
