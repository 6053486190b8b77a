"""The bootstrap credential: which fields of a kubeconfig are accepted, and which are refused."""

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from authenticator.config import bootstrap_credential, invocation, kubeconfig
from authenticator.errors import BootstrapCredentialUnusable
from authenticator.model import ApiCredential, KeyPair, Token
from tests.builders import credentials
from tests.builders import kubeconfigs as builders


def written(tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any] | None = None) -> Path:
    path = tmp_path / "bootstrap.conf"
    document = builders.kubeconfig(user, cluster)
    document["users"].insert(0, {"name": "other", "user": {}})
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def loaded(tmp_path: Path, user: dict[str, Any]) -> ApiCredential:
    """Load the credential of a kubeconfig with this user."""
    return bootstrap_credential.load_bootstrap_credential(written(tmp_path, user))


def test_token_is_loaded(tmp_path: Path) -> None:
    assert loaded(tmp_path, {"token": "a.b"}) == Token(token="a.b")


def test_token_file_is_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a.b\n", encoding="ascii")
    assert loaded(tmp_path, {"tokenFile": "token"}) == Token(token="a.b")


@pytest.mark.parametrize(("content", "token"), [("c.d", "c.d"), ("", "a.b"), (None, "a.b")])
def test_token_file_precedes_the_token_while_it_can_be_read(
    tmp_path: Path, content: str | None, token: str
) -> None:
    """As in client-go: the kubelet used the file, and this program the token."""
    if content is not None:
        (tmp_path / "token").write_text(content, encoding="ascii")
    assert loaded(tmp_path, {"token": "a.b", "tokenFile": "token"}) == Token(token=token)


def test_token_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(b"a\xff")
    with pytest.raises(BootstrapCredentialUnusable, match="one word"):
        loaded(tmp_path, {"tokenFile": "token"})


def test_empty_field_counts_as_absent(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a.b\n", encoding="ascii")
    assert loaded(tmp_path, {"token": "", "tokenFile": "token"}) == Token(token="a.b")


def test_certificate_and_key_are_loaded(tmp_path: Path) -> None:
    (tmp_path / "key.pem").write_bytes(credentials.KEY)
    data = base64.b64encode(credentials.CERTIFICATE).decode()
    user = {"client-certificate-data": data, "client-key": "key.pem"}
    key_pair = KeyPair(certificate=credentials.CERTIFICATE, key=credentials.KEY)
    assert loaded(tmp_path, user) == key_pair


def test_repr_shows_no_secret(tmp_path: Path) -> None:
    assert "a.b" not in repr(loaded(tmp_path, {"token": "a.b"}))


WRONG_USERS: dict[str, tuple[dict[str, Any], str]] = {
    "nothing": ({}, "neither a token"),
    "key without certificate": ({"client-key-data": "QQ=="}, "neither a token"),
    "certificate without key": ({"client-certificate-data": "QQ=="}, "neither a token"),
    "key that is not base64": (
        {"client-certificate-data": "QQ==", "client-key-data": "!"},
        "must be base64",
    ),
    "key that is not ASCII": (
        {"client-certificate-data": "QQ==", "client-key-data": "ä"},
        "must be base64",
    ),
    "token that is a number": ({"token": 5}, "must be a string"),
    "token that would end the header": ({"token": "a\r\nX: y"}, "one word"),
    "token that is not ASCII": ({"token": "ä"}, "one word"),
    "token with a control character": ({"token": "a\x7fb"}, "one word"),
    "token of two words": ({"token": "a b"}, "one word"),
    "token of spaces": ({"token": " "}, "one word"),
    "missing file": ({"tokenFile": "/nonexistent/token"}, "No such file"),
}


@pytest.mark.parametrize("wrong", WRONG_USERS)
def test_wrong_user_is_refused_with_the_problem(tmp_path: Path, wrong: str) -> None:
    user, message = WRONG_USERS[wrong]
    with pytest.raises(BootstrapCredentialUnusable, match=message):
        loaded(tmp_path, user)


@pytest.mark.parametrize(
    "key", ["exec", "auth-provider", "username", "password", "as", "as-uid", "as-groups"]
)
def test_user_with_an_unsupported_key_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(BootstrapCredentialUnusable, match=f"has {key},"):
        loaded(tmp_path, {"token": "a.b", key: "x"})


@pytest.mark.parametrize(("excess", "message"), [(0, None), (1, "over 1 MiB")])
def test_file_is_read_up_to_its_limit(tmp_path: Path, excess: int, message: str | None) -> None:
    path = written(tmp_path, {"token": "a.b"})
    content = path.read_bytes()
    path.write_bytes(content + b"#" * (kubeconfig.SIZE_LIMIT - len(content) + excess))
    if message is None:
        assert bootstrap_credential.load_bootstrap_credential(path) == Token(token="a.b")
    else:
        with pytest.raises(BootstrapCredentialUnusable, match=message):
            bootstrap_credential.load_bootstrap_credential(path)


@pytest.mark.parametrize("entry", [{"name": "u", "user": ["token"]}, {"name": "u"}, {}])
def test_malformed_user_is_refused(tmp_path: Path, entry: dict[str, Any]) -> None:
    path = written(tmp_path, {})
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    document["users"] = [entry]
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    with pytest.raises(BootstrapCredentialUnusable, match="must name one cluster"):
        bootstrap_credential.load_bootstrap_credential(path)


WRONG_FILES: dict[str, bytes] = {
    "empty": b"",
    "not YAML": b"{",
    "not text": b"\xff\xfe\xff",
    "a list": b"[]",
    "Python": b"!!python/object/apply:os.system ['false']",
    "tag that does not fit": b"!!bool ...\n",
    "no context": b"{contexts: [], clusters: [], users: [], current-context: x}",
    "wrong kinds": b"{contexts: 5, clusters: 5, users: 5, current-context: x}",
    "too large": b"#" * (kubeconfig.SIZE_LIMIT + 1),
}


@pytest.mark.parametrize("wrong", WRONG_FILES)
def test_wrong_file_is_refused(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(WRONG_FILES[wrong])
    with pytest.raises(BootstrapCredentialUnusable, match=str(path)):
        bootstrap_credential.load_bootstrap_credential(path)


def test_invalid_file_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BootstrapCredentialUnusable, match="is not a file name"):
        loaded(tmp_path, {"tokenFile": "a\0b"})


def test_keys_of_settings_become_strings_as_in_go(tmp_path: Path) -> None:
    extension = {"name": invocation.EXEC_EXTENSION, "extension": {1: 2, "b": None}}
    path = written(tmp_path, {"exec": {}}, {"extensions": [extension]})
    call = invocation.call_of_kubeconfig(kubeconfig.load(path))
    assert b'"config":{"1":2,"b":null}' in call.exec_info
