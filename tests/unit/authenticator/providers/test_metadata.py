"""The client of metadata services, and its limits for a hostile service."""

import http.server
import socket

import pytest

from authenticator.errors import ProviderAnswerInvalid, ProviderUnavailable
from authenticator.model import Deadline
from authenticator.providers.metadata import (
    LINK_LOCAL,
    MAX_RESPONSE_BYTES,
    READ_SECONDS,
    TOTAL_SECONDS,
    MetadataService,
)
from tests.fakes.clock import FakeClock
from tests.fakes.metadata_server import Exchange, Recorded


def ask(recorded: Recorded, deadline: Deadline) -> str:
    with (
        recorded.running() as url,
        MetadataService(url, deadline, {"Metadata": "true"}) as service,
    ):
        return service.get("/key").text


def answering(exchange: Exchange) -> Recorded:
    return Recorded({"GET /key": exchange})


def test_answer_is_its_text(deadline: Deadline) -> None:
    assert ask(answering(Exchange(body=b"the value")), deadline) == "the value"


def test_headers_are_sent_with_each_request(deadline: Deadline) -> None:
    assert ask(answering(Exchange(body=b"v", asks={"Metadata": "true"})), deadline) == "v"
    with pytest.raises(ProviderAnswerInvalid, match="400"):
        ask(answering(Exchange(body=b"v", asks={"Metadata": "other"})), deadline)


def test_address_is_link_local() -> None:
    """Plain HTTP goes nowhere else."""
    assert LINK_LOCAL == "http://169.254.169.254"


def test_request_accepts_no_compression_and_has_a_user_agent(deadline: Deadline) -> None:
    asks = {"Accept-Encoding": "identity", "User-Agent": "kubelet-authenticator-tpm"}
    assert ask(answering(Exchange(body=b"v", asks=asks)), deadline) == "v"


def test_response_of_the_maximum_size_is_accepted(deadline: Deadline) -> None:
    assert (
        len(ask(answering(Exchange(body=b"x" * MAX_RESPONSE_BYTES)), deadline))
        == MAX_RESPONSE_BYTES
    )


@pytest.mark.parametrize(
    ("exchange", "message"),
    [
        (Exchange(status=302, headers={"Location": "http://192.0.2.1/"}), "redirects"),
        (Exchange(status=307, headers={"Location": "/key2"}), "redirects"),
        (Exchange(status=404), "has no /key"),
        (Exchange(status=405), "405"),
        (Exchange(status=204), "204"),
        (Exchange(body=b"x" * (MAX_RESPONSE_BYTES + 1)), "too large"),
        (Exchange(body=b"\xff\xfe"), "not UTF-8 text"),
        (Exchange(body=b"\x1f\x8b", headers={"Content-Encoding": "gzip"}), "compressed"),
    ],
)
def test_responses_that_no_platform_sends_are_refused(
    deadline: Deadline, exchange: Exchange, message: str
) -> None:
    with pytest.raises(ProviderAnswerInvalid, match=message):
        ask(answering(exchange), deadline)


@pytest.mark.parametrize("status", [401, 403, 408, 410, 429, 500, 503, 599])
def test_service_that_cannot_answer_now_is_unavailable(deadline: Deadline, status: int) -> None:
    with pytest.raises(ProviderUnavailable, match=str(status)):
        ask(answering(Exchange(status=status)), deadline)


def test_closed_port_is_unavailable(deadline: Deadline) -> None:
    with socket.socket() as closed:  # this socket holds the port and does not listen
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        with (
            MetadataService(url, deadline, {}) as service,
            pytest.raises(ProviderUnavailable, match="is this machine on that platform"),
        ):
            service.get("/key")


def test_service_that_never_answers_is_unavailable(soon: Deadline) -> None:
    recorded = answering(Exchange(body=b"late"))
    recorded.write = lambda _handler, _body: (recorded.ended.wait(), None)[1]
    with pytest.raises(ProviderUnavailable):
        ask(recorded, soon)


def test_dripped_body_ends_in_time(passing: Deadline) -> None:
    """Each byte comes in time, but the last byte never does."""

    def drip(handler: http.server.BaseHTTPRequestHandler, _body: bytes) -> None:
        while not recorded.ended.is_set():
            try:
                handler.wfile.write(b"x")
            except OSError:
                return

    recorded = answering(Exchange(body=b"x" * MAX_RESPONSE_BYTES))
    recorded.write = drip
    with pytest.raises(ProviderUnavailable, match="in time"):
        ask(recorded, passing)


def test_incomplete_response_is_unavailable(deadline: Deadline) -> None:
    recorded = answering(Exchange(body=b"half of it"))
    recorded.write = break_off
    with pytest.raises(ProviderUnavailable):
        ask(recorded, deadline)


def break_off(handler: http.server.BaseHTTPRequestHandler, body: bytes) -> None:
    """Send half of a response."""
    handler.wfile.write(body[: len(body) // 2])
    handler.close_connection = True


def test_all_requests_share_one_time_limit(passing: Deadline) -> None:
    recorded = answering(Exchange(body=b"v"))
    with recorded.running() as url, MetadataService(url, passing, {}) as service:
        questions = (service.get("/key") for _ in range(100))
        with pytest.raises(ProviderUnavailable, match="in time"):
            list(questions)
    assert 1 <= len(recorded.asked) <= TOTAL_SECONDS / 2


def test_no_request_is_made_after_the_deadline() -> None:
    recorded = answering(Exchange(body=b"v"))
    with pytest.raises(ProviderUnavailable, match="in time"):
        ask(recorded, Deadline(FakeClock(), 0.0))
    assert recorded.asked == []


def test_wait_is_limited_by_its_timeout_and_by_the_deadline(
    deadline: Deadline, soon: Deadline
) -> None:
    for given, longest in ((deadline, TOTAL_SECONDS), (soon, 0.2)):
        with MetadataService("http://127.0.0.1", given, {}) as service:
            assert service._clamp(0.1) == pytest.approx(0.1)
            assert service._clamp(READ_SECONDS) == pytest.approx(min(READ_SECONDS, longest))
            assert service._clamp(60) == pytest.approx(longest)


def test_environment_is_not_used(deadline: Deadline, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy would see session tokens, and could answer for the platform."""
    with Recorded({}).running() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert ask(answering(Exchange(body=b"the value")), deadline) == "the value"
