"""Requests to the API of a platform end in time, are small, and go nowhere else."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from signer.errors import PlatformQueryFailed, PlatformUnavailable
from signer.platforms import https
from signer.platforms.https import call
from tests.fakes.api_server import FakeApiServer, api_server
from tests.fakes.drips import DRIPS, dripping


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeApiServer]:
    with api_server(lambda a: a.give(b"answer"), tmp_path) as running:
        (tmp_path / "ca.crt").write_bytes(running.authority.pair.certificate)
        yield running


def get(server: FakeApiServer, directory: Path) -> https.Answer:
    return call("GET", f"{server.url}/", {}, None, directory / "ca.crt")


def test_answer_is_read(server: FakeApiServer, tmp_path: Path) -> None:
    assert get(server, tmp_path) == https.Answer(status=200, content=b"answer")


def test_redirect_is_not_followed(server: FakeApiServer, tmp_path: Path) -> None:
    server.handler = lambda a: a.give(b"", 307, Location=f"{server.url}/elsewhere")
    assert get(server, tmp_path).status == 307
    assert [request.path for request in server.requests] == ["/"]


def test_large_answer_is_not_read(server: FakeApiServer, tmp_path: Path) -> None:
    server.handler = lambda a: a.give(b" " * ((64 << 10) + 1))
    with pytest.raises(PlatformQueryFailed, match="too large"):
        get(server, tmp_path)


@pytest.mark.parametrize("drip", DRIPS)
def test_dripping_answer_ends_in_time(
    server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drip: str
) -> None:
    server.handler = dripping(drip)
    monkeypatch.setattr(https, "ANSWER_SECONDS", 0.5)
    with pytest.raises(PlatformUnavailable, match="does not answer"):
        get(server, tmp_path)


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_authorities_that_cannot_be_read_are_reported(
    server: FakeApiServer, tmp_path: Path, content: str | None
) -> None:
    (tmp_path / "ca.crt").unlink()
    if content is not None:
        (tmp_path / "ca.crt").write_text(content, encoding="ascii")
    with pytest.raises(PlatformQueryFailed, match="authorities"):
        get(server, tmp_path)
