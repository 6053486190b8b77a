"""What every read of a hostile API server has in common: requests, lists and watches."""

import gc
import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Lock
from unittest.mock import patch

import pytest

from common.errors import ApiServerUnavailable
from signer.kube.transport import client, list_watch
from signer.kube.transport.client import ApiClient, Expired, PageTooLarge
from signer.kube.transport.interruption import Interruption
from signer.kube.transport.kubeconfig import ClientCertificate, Connection
from signer.kube.transport.list_watch import ListWatch
from tests.fakes.api_server import Answering, Handler, api_server
from tests.fakes.drips import DRIPS, dripping
from tests.harness import pki

PATH = "/api/v1/things"
QUERY = {"limit": "1"}
MAX_RESPONSE = 1 << 20

Read = Callable[[ApiClient], bytes]


def by_request(api: ApiClient) -> bytes:
    return api.get_page(PATH, QUERY).content


def list_watch_of(api: ApiClient) -> ListWatch:
    return ListWatch(api, Interruption(), Lock())


def by_list(api: ApiClient) -> bytes:
    return list_watch_of(api).get_page(PATH, QUERY).content


def by_watch(api: ApiClient) -> bytes:
    return b"".join(list_watch_of(api).watch(PATH, QUERY))


every_read = pytest.mark.parametrize("read", [by_request, by_list, by_watch])
every_answer = pytest.mark.parametrize("read", [by_request, by_list])


def read_with(read: Read, connection: Connection) -> bytes:
    api = ApiClient("fake", connection, user_agent="test", max_response=MAX_RESPONSE)
    try:
        return read(api)
    finally:
        api.close()
        gc.collect()


def read_from(handler: Handler, read: Read, directory: Path) -> bytes:
    with api_server(handler, directory) as server:
        return read_with(read, server.connection())


@every_read
def test_request_has_credential_and_user_agent(read: Read, tmp_path: Path) -> None:
    with api_server(lambda a: a.give(b"{}\n"), tmp_path) as server:
        assert read_with(read, server.connection()).strip() == b"{}"
    [request] = server.requests
    assert request.method == "GET"
    assert request.path.removesuffix("&watch=true") == f"{PATH}?limit=1"
    assert request.headers["Authorization"] == "Bearer very-secret"
    assert request.headers["User-Agent"] == "test"
    assert request.headers["Host"] == server.url.removeprefix("https://")


@every_read
def test_unexpected_status_is_unavailable(read: Read, tmp_path: Path) -> None:
    with pytest.raises(ApiServerUnavailable) as caught:
        read_from(lambda a: a.give({"message": "go away"}, 403), read, tmp_path)
    assert caught.value.message == "the API server answered with status 403"
    assert "go away" in caught.value.detail
    assert "very-secret" not in caught.value.detail


@every_read
def test_expired_version_raises_expired(read: Read, tmp_path: Path) -> None:
    with pytest.raises(Expired):
        read_from(lambda a: a.give({}, 410), read, tmp_path)


@every_read
def test_redirect_is_not_followed(read: Read, tmp_path: Path) -> None:
    """A workload cluster could redirect the signer, with its token, to the management cluster."""
    with api_server(lambda a: a.give({}, 307, Location="/elsewhere"), tmp_path) as server:
        with pytest.raises(ApiServerUnavailable, match="status 307"):
            read_with(read, server.connection())
        assert len(server.requests) == 1


@every_answer
def test_endless_answer_is_abandoned(read: Read, tmp_path: Path) -> None:
    def endless(answering: Answering) -> None:
        answering.give_chunks(itertools.repeat(b"x" * 65536))

    with pytest.raises(PageTooLarge):
        read_from(endless, read, tmp_path)


@every_answer
def test_compressed_answer_is_not_decompressed(read: Read, tmp_path: Path) -> None:
    """A few kilobytes could become gigabytes in memory."""

    def zipped(answering: Answering) -> None:
        answering.give(b"\x1f\x8b", 200, **{"Content-Encoding": "gzip"})

    assert read_from(zipped, read, tmp_path) == b"\x1f\x8b"


@every_read
@pytest.mark.parametrize("drip", DRIPS)
def test_dripping_answer_is_abandoned(drip: str, read: Read, tmp_path: Path) -> None:
    """Each byte renews the timeout of a socket: only a limit for the whole answer helps."""
    begun = time.monotonic()
    with (
        patch.object(client, "ANSWER_SECONDS", 0.5),
        patch.object(list_watch, "ANSWER_SECONDS", 0.5),
        patch.object(list_watch, "_WATCH_SECONDS", 0.5),
        pytest.raises(ApiServerUnavailable, match="cannot be reached") as caught,
    ):
        read_from(dripping(drip), read, tmp_path)
    assert "timed out" in caught.value.detail
    assert time.monotonic() - begun < 20.0


@every_answer
def test_page_of_several_objects_that_comes_too_slowly_is_too_large(
    read: Read, tmp_path: Path
) -> None:
    """The list goes on with a smaller page, down to one object."""
    with (
        patch.dict(QUERY, limit="2"),
        patch.object(client, "ANSWER_SECONDS", 0.5),
        patch.object(list_watch, "ANSWER_SECONDS", 0.5),
        pytest.raises(PageTooLarge),
    ):
        read_from(dripping("chunks"), read, tmp_path)


@every_read
def test_server_that_is_down_is_unavailable(read: Read, tmp_path: Path) -> None:
    with api_server(lambda a: a.give({}), tmp_path) as server:
        connection = server.connection()
    with pytest.raises(ApiServerUnavailable, match="cannot be reached"):
        read_with(read, connection)


@every_read
def test_server_with_another_ca_gets_no_request(read: Read, tmp_path: Path) -> None:
    stranger = pki.Authority.make("stranger", pki.ec_key()).pair.certificate.decode()
    with (
        api_server(lambda a: a.give({}), tmp_path) as server,
        pytest.raises(ApiServerUnavailable) as caught,
    ):
        read_with(read, replace(server.connection(), ca=stranger))
    assert "CERTIFICATE_VERIFY_FAILED" in caught.value.detail
    assert server.requests == []


@every_answer
def test_server_name_of_the_kubeconfig_is_verified(read: Read, tmp_path: Path) -> None:
    with api_server(lambda a: a.give({}), tmp_path, names=("kubernetes",)) as server:
        with pytest.raises(ApiServerUnavailable, match="cannot be reached"):
            read_with(read, server.connection())
        named = replace(server.connection(), server_name="kubernetes")
        assert read_with(read, named) == b"{}"


@every_answer
def test_client_certificate_is_used_without_a_file(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed process would leave temporary files with keys on disk."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "nowhere"))
    with api_server(lambda a: a.give({}), tmp_path) as server:
        pair = server.authority.client("signer", "group")
        shown = ClientCertificate(certificate=pair.certificate.decode(), key=pair.key.decode())
        read_with(read, replace(server.connection(), token=None, certificate=shown))
    assert [request.client for request in server.requests] == ["signer"]
    assert not (tmp_path / "nowhere").exists()
