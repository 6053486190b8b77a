"""The operator's connection: its credential, its errors, and writes under a version."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from math import inf
from pathlib import Path
from typing import Any

import pytest
import yaml

from signer.kube.transport.client import Request
from signer.operator_cli.errors import CommandError, InputInvalid, Rejected, ServerUnavailable
from signer.operator_cli.keys.endorsement_key_objects import change_key, find_key
from signer.operator_cli.management import api
from signer.operator_cli.management.api import ManagementApi, connect
from tests.fakes.api_server import Answering, FakeApiServer, api_server
from tests.fakes.cluster_clients import management_api
from tests.fakes.management_api import FakeManagement
from tests.harness import kubeconfig

NAME = "ab" * 32
REVIEW = {"status": {"userInfo": {"username": "alice"}}}
Answer = Callable[[Answering], None]


@contextmanager
def served(answer: Answer, directory: Path) -> Iterator[tuple[FakeApiServer, Path]]:
    """Serve a SelfSubjectReview of alice, and any other request with `answer`."""

    def handle(request: Answering) -> None:
        if request.path.endswith("selfsubjectreviews"):
            request.give(REVIEW, 201)
        else:
            answer(request)

    with api_server(handle, directory) as server:
        file = directory / "kubeconfig"
        authority = server.authority.pair.certificate
        file.write_text(kubeconfig.with_token(server.url, authority, "secret-token"))
        yield server, file


def give(body: object, status: int = 200) -> Answer:
    return lambda request: request.give(body, status)


def api_of(file: Path) -> ManagementApi:
    return connect(str(file), None)


def test_token_of_the_kubeconfig_is_sent(tmp_path: Path) -> None:
    with served(give({}), tmp_path) as (server, file):
        assert api_of(file).username == "alice"
    [request] = {tuple(sorted(r.headers.items())) for r in server.requests}
    headers = {name.lower(): value for name, value in request}
    assert headers["authorization"] == "Bearer secret-token"


def test_other_user_is_named_in_each_request(tmp_path: Path) -> None:
    """As kubectl's flag --as does it: RBAC decides whether the credential may impersonate."""
    with served(give({}), tmp_path) as (server, file):
        connect(str(file), None, "bob").get("/apis/x")
    headers = [{k.lower(): v for k, v in r.headers.items()} for r in server.requests]
    assert [each["impersonate-user"] for each in headers] == ["bob", "bob"]


def test_dry_run_lets_the_server_check_each_write(tmp_path: Path) -> None:
    body = {"metadata": {"name": NAME, "resourceVersion": "1"}, "spec": {}}
    with served(give(body), tmp_path) as (server, file):
        api = api_of(file)
        api.dry_run = True
        assert change_key(api, NAME, lambda _: {"banned": {}}) == "changed"
    [write] = [r for r in server.requests if r.method == "PATCH"]
    assert "dryRun=All" in write.path
    assert api.written == []


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        (401, ServerUnavailable, "does not accept the credential"),
        (403, ServerUnavailable, "permission is missing .403.: no"),
        (404, Rejected, "not found: GET /apis/x"),
        (422, Rejected, "rejects the object: no"),
        (500, ServerUnavailable, "answered 500: no"),
        (200, ServerUnavailable, "answered 200: no"),
    ],
)
def test_status_becomes_an_error_with_a_next_step(
    tmp_path: Path, status: int, error: type[CommandError], message: str
) -> None:
    with (
        served(give({"message": "no"}, status), tmp_path) as (_, file),
        pytest.raises(error, match=message) as raised,
    ):
        api_of(file).get("/apis/x", accepted=())
    assert raised.value.hint or status == HTTPStatus.UNPROCESSABLE_ENTITY


def test_redirect_is_not_followed(tmp_path: Path) -> None:
    """The credential would go to the other server."""

    def redirect(request: Answering) -> None:
        request.give({}, 302, Location="/elsewhere")

    with (
        served(redirect, tmp_path) as (server, file),
        pytest.raises(ServerUnavailable, match="302"),
    ):
        api_of(file).get("/apis/x")
    assert "/elsewhere" not in {r.path for r in server.requests}


def test_server_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with served(give({}), tmp_path) as (server, file):
        pass
    with pytest.raises(ServerUnavailable, match=f"{server.url} cannot be reached"):
        api_of(file)


FAILING = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "command": "sh",
    "args": ["-c", "echo the session has expired >&2; exit 1"],
    "interactiveMode": "Never",
}


@pytest.mark.parametrize(
    ("user", "reason"), [({}, "$"), ({"exec": FAILING}, ": .*the session has expired")]
)
def test_kubeconfig_without_credential_sends_no_request(
    tmp_path: Path, user: dict[str, Any], reason: str
) -> None:
    """The official loader only logs the failure of a plugin, and then connects without one."""
    with served(give({}), tmp_path) as (server, file):
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
        document["users"][0]["user"] = user
        file.write_text(yaml.safe_dump(document), encoding="utf-8")
        with pytest.raises(ServerUnavailable, match=f"the kubeconfig gave no credential{reason}"):
            api_of(file)
    assert not server.requests


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            give({"status": {"userInfo": {"username": "system:anonymous"}}}, 201),
            "the user is system:anonymous",
        ),
        (give({}, 404), "must be the API server of a supported"),
    ],
    ids=["anonymous", "no API server"],
)
def test_server_that_names_no_user_is_an_error(
    tmp_path: Path, answer: Answer, message: str
) -> None:
    """`doctor` told the operator to run `doctor`, and ended with the status of a problem."""
    with served(give({}), tmp_path) as (server, file):
        server.handler = answer
        with pytest.raises(ServerUnavailable, match=message):
            api_of(file)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        ("", "is empty"),
        ("clusters: [", "cannot be used: while parsing"),
        ("text", "must have clusters, users and contexts"),
        ("[]", "must have clusters, users and contexts"),
        ("clusters: []", "cannot be used: .* current-context"),
    ],
)
def test_unusable_kubeconfig_is_named_in_one_line(
    tmp_path: Path, content: str | None, message: str
) -> None:
    """YAML that cannot be parsed, and a list, ended with a traceback."""
    file = tmp_path / "kubeconfig"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    with pytest.raises(ServerUnavailable, match=message) as error:
        api_of(file)
    assert str(file) in error.value.message
    assert "\n" not in error.value.message
    assert "--kubeconfig" in error.value.hint


def test_empty_variable_means_the_default_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "KUBE_CONFIG_DEFAULT_LOCATION", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    with served(give({}), tmp_path) as (_, file):
        (tmp_path / ".kube").mkdir()
        file.rename(tmp_path / ".kube/config")
        assert connect(None, None).username == "alice"


def test_skipped_verification_of_the_server_prints_no_warning(tmp_path: Path) -> None:
    """Python printed a warning with a line of a library; tests turn warnings into errors."""
    with served(give({}), tmp_path) as (_, file):
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
        del document["clusters"][0]["cluster"]["certificate-authority-data"]
        document["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
        file.write_text(yaml.safe_dump(document), encoding="utf-8")
        assert api_of(file).username == "alice"


def test_list_reads_all_pages(tmp_path: Path) -> None:
    def page(request: Answering) -> None:
        further = "continue=more" in request.path
        metadata = {} if further else {"continue": "more"}
        request.give({"metadata": metadata, "items": [{"n": int(further)}]})

    with served(page, tmp_path) as (_, file):
        assert api_of(file).list_objects("/apis/x") == [{"n": 0}, {"n": 1}]


@pytest.mark.parametrize(("stored", "outcome"), [(True, "changed"), (False, "created")])
def test_change_is_written_under_the_version_that_was_read(
    stored: bool,  # noqa: FBT001 - a parameter of the case
    outcome: str,
) -> None:
    management = FakeManagement()
    if stored:
        management.put_key(NAME)
    version = str(management.version) if stored else None
    change = change_key(management_api(management), NAME, lambda _: {"banned": {}}, pem="PEM")
    assert change == outcome
    assert management.key(NAME) == {"banned": {}, "publicKey": "PEM"}
    [body] = management.bodies
    assert body["metadata"].get("resourceVersion") == version


@pytest.mark.parametrize("stored", [True, False])
def test_change_is_made_again_after_a_conflict(
    stored: bool,  # noqa: FBT001 - a parameter of the case
) -> None:
    management = FakeManagement()

    def meanwhile(_: Request) -> None:
        management.put_key(NAME, publicKey=f"of {len(management.writes)}")

    if stored:
        management.put_key(NAME)
    management.intercept(meanwhile, "POST PATCH", times=2)
    change = change_key(management_api(management), NAME, lambda _: {"banned": {}})
    assert change == "changed"
    assert management.key(NAME) == {"banned": {}, "publicKey": "of 2"}


def test_endless_conflicts_are_an_error() -> None:
    management = FakeManagement()
    management.intercept(409, "POST", times=inf)
    with pytest.raises(ServerUnavailable, match="changes all"):
        change_key(management_api(management), NAME, lambda _: {"banned": {}})


def test_change_that_is_there_already_is_not_written() -> None:
    management = FakeManagement()
    management.put_key(NAME)
    assert change_key(management_api(management), NAME, lambda _: None) == "unchanged"
    assert not management.writes


def recorded(*names: str) -> ManagementApi:
    """Return a management cluster with EndorsementKeys."""
    management = FakeManagement()
    for name in names:
        management.put_key(name)
    return management_api(management)


KEYS = NAME, "abcd" * 16


@pytest.mark.parametrize("text", [NAME, f"sha256:{NAME.upper()}", NAME[:12], f"sha256:{NAME[:6]}"])
def test_key_is_found(text: str) -> None:
    assert find_key(recorded(*KEYS), text).name == NAME


@pytest.mark.parametrize(
    ("text", "error"),
    [("abcd" * 3, None), ("123456", Rejected), ("ab", InputInvalid), ("team-a/n", InputInvalid)],
)
def test_ambiguous_or_unknown_key_is_refused(text: str, error: type[CommandError] | None) -> None:
    if error is None:
        assert find_key(recorded(*KEYS), text).name == "abcd" * 16
    else:
        with pytest.raises(error):
            find_key(recorded(*KEYS), text)


def test_beginning_of_two_keys_is_ambiguous() -> None:
    both = ("abcdef" + c * 58 for c in "01")
    with pytest.raises(Rejected, match="2 recorded keys begin with abcdef"):
        find_key(recorded(*both), "abcdef")
