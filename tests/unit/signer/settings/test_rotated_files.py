"""The files with the CA of the management cluster are replaced while the signer runs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from common.errors import ApiServerUnavailable
from signer.kube.transport.client import ApiClient
from signer.kube.transport.kubeconfig import Connection
from signer.settings import config
from signer.settings.config import load_connection
from tests.fakes.api_server import HOST, FakeApiServer, api_server
from tests.harness import kubeconfig, pki

PATH = "/api/v1/things"


def in_pod(server: FakeApiServer, directory: Path) -> None:
    """Write the files of a service account."""
    (directory / "ca.crt").write_bytes(server.authority.pair.certificate)
    (directory / "token").write_text("t")


def outside(server: FakeApiServer, directory: Path) -> None:
    """Write a kubeconfig."""
    text = kubeconfig.with_token(server.url, server.authority.pair.certificate, "t")
    (directory / "kubeconfig").write_text(text)


def load(directory: Path, port: int) -> Connection:
    path, problems = directory / "kubeconfig", list[str]()
    connection = load_connection(path if path.exists() else None, (HOST, str(port)), problems)
    assert connection is not None, problems
    return connection


@pytest.mark.parametrize("write", [in_pod, outside])
def test_the_next_handshake_trusts_the_authority_that_the_file_has_now(
    write: Callable[[FakeApiServer, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was read once, so nothing worked after a rotation until the signer was restarted."""
    monkeypatch.setattr(config, "SERVICE_ACCOUNT", tmp_path)
    with api_server(lambda a: a.give({}, Connection="close"), tmp_path) as server:
        write(server, tmp_path)
        api = ApiClient("fake", load(tmp_path, server.server_port), user_agent="test")
        api.get(PATH)
        context = api.endpoint.context
        server.rotate(pki.Authority.make("rotated", pki.ec_key()), tmp_path)
        with pytest.raises(ApiServerUnavailable) as caught:
            api.get(PATH)
        assert "CERTIFICATE_VERIFY_FAILED" in caught.value.detail
        assert api.endpoint.context is context, "as long as the file is the same"
        succeeded_at = api.succeeded_at
        write(server, tmp_path)
        api.get(PATH)
        assert api.succeeded_at > succeeded_at
        api.close()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the kubeconfig must be a mapping"),
        (None, "No such file"),
        ("other", "needs a restart"),
    ],
    ids=["damaged", "missing", "another server"],
)
def test_a_file_that_cannot_be_used_leaves_the_last_authority_in_use(
    text: str | None, message: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with api_server(lambda a: a.give({}, Connection="close"), tmp_path) as server:
        outside(server, tmp_path)
        api = ApiClient("fake", load(tmp_path, server.server_port), user_agent="test")
        path = tmp_path / "kubeconfig"
        path.unlink()
        if text is not None:
            ca = server.authority.pair.certificate
            other = kubeconfig.with_token("https://other.example:6443", ca, "t")
            path.write_text(other if text else "")
        api.get(PATH)
        api.close()
    [record] = caplog.records
    assert record.getMessage() == "connection not read again"
    assert message in vars(record)["fields"]["message"]
