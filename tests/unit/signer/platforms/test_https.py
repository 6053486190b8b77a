"""Requests to platforms: what is wrong with a request of ours."""

from pathlib import Path

import pytest

from signer.errors import PlatformQueryFailed
from signer.platforms.https import call
from tests.fakes.api_server import api_server


def test_credential_that_no_header_may_have_is_not_quoted(tmp_path: Path) -> None:
    """The text of the HTTP library's exception has the whole value."""
    with api_server(lambda a: a.give({}), tmp_path) as server:
        bundle = tmp_path / "ca.crt"
        bundle.write_bytes(server.authority.pair.certificate)
        headers = {"authorization": "very-secret\n"}
        with pytest.raises(PlatformQueryFailed, match="header of the query") as caught:
            call("GET", server.url, headers, None, bundle)
    assert "very-secret" not in caught.value.detail
    assert server.requests == []
