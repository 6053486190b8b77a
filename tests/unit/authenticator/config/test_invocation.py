"""The call of the kubelet, rebuilt for commands that an operator or a timer runs."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from authenticator.config import invocation, kubeconfig
from authenticator.errors import ExecInfoInvalid, KubeconfigUnusable
from authenticator.state.credential import Credential
from tests.builders import credentials
from tests.builders import kubeconfigs as builders

CLUSTER = {"server": "https://a.example", "certificate-authority-data": "Q0E="}
STANZA = {"apiVersion": "client.authentication.k8s.io/v1", "args": ["--tcti", "x"]}


def written(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], **settings: object
) -> Path:
    extension = {"name": invocation.EXEC_EXTENSION, "extension": settings}
    extensions = [{"name": "other", "extension": {}}, extension]
    document = builders.kubeconfig(user, {**cluster, "extensions": extensions})
    path = tmp_path / "kubelet.conf"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return path


def call_of(path: Path) -> invocation.PluginCall:
    return invocation.call_of_kubeconfig(kubeconfig.load(path))


def cached(call: invocation.PluginCall, arguments: tuple[str, ...] = ("--tcti", "x")) -> Credential:
    return credentials.make(0, exec_info=call.exec_info, arguments=arguments)


def test_call_of_a_kubeconfig_equals_that_of_client_go(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(b"CA")
    cluster = {"server": "https://a.example", "certificate-authority": "ca.crt"}
    path = written(tmp_path, {"exec": STANZA}, cluster, nodeName="n")
    call = call_of(path)
    assert call.origin == str(path)
    assert call.arguments == ("--tcti", "x")
    assert call.exec_info == (
        b'{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":'
        b'{"cluster":{"server":"https://a.example","certificate-authority-data":"Q0E=",'
        b'"config":{"nodeName":"n"}},"interactive":false}}\n'
    )
    assert base64.b64decode("Q0E=") == b"CA"


def test_corrected_kubeconfig_overrides_the_cache(tmp_path: Path) -> None:
    before = call_of(written(tmp_path, {"exec": STANZA}, CLUSTER, providerID="test:///wrong"))
    path = written(tmp_path, {"exec": STANZA}, CLUSTER, providerID="test:///right")
    call = invocation.find_call(None, cached(before), path, explicit=False)
    assert b"test:///right" in call.exec_info


def test_explicit_kubeconfig_overrides_environment_and_cache(tmp_path: Path) -> None:
    path = written(tmp_path, {"exec": STANZA}, CLUSTER)
    call = invocation.find_call(b"raw", credentials.make(0), path, explicit=True)
    assert call == call_of(path)
    with pytest.raises(KubeconfigUnusable, match="nowhere"):
        invocation.find_call(b"raw", credentials.make(0), tmp_path / "nowhere", explicit=True)


def test_environment_overrides_the_default_kubeconfig(tmp_path: Path) -> None:
    path = written(tmp_path, {"exec": STANZA}, CLUSTER)
    assert invocation.find_call(b"raw", None, path, explicit=False).exec_info == b"raw"


@pytest.mark.parametrize("user", [{"token": "a"}, {"exec": 5}, {"exec": {"args": 5}}])
def test_cache_is_used_for_a_kubeconfig_that_does_not_run_the_program(
    tmp_path: Path, user: dict[str, Any]
) -> None:
    credential = credentials.make(0, arguments=("--tcti", "x"))
    path = written(tmp_path, user, CLUSTER)
    call = invocation.find_call(None, credential, path, explicit=False)
    assert (call.exec_info, call.arguments) == (credentials.EXEC_INFO, ("--tcti", "x"))
    with pytest.raises(ExecInfoInvalid):
        invocation.find_call(None, None, path, explicit=False)


def test_missing_kubeconfig_is_named_without_a_cache(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigUnusable, match="nowhere"):
        invocation.find_call(None, None, tmp_path / "nowhere", explicit=False)


def test_differences_are_the_members_that_changed(tmp_path: Path) -> None:
    before = call_of(written(tmp_path, {"exec": STANZA}, CLUSTER, providerID="a", nodeName="n"))
    changed = {**CLUSTER, "server": "https://b.example"}
    after = call_of(written(tmp_path, {"exec": STANZA}, changed, providerID="b", nodeName="n"))
    assert invocation.differences(after, cached(before)) == ("providerID", "server")
    assert invocation.differences(after, cached(after)) == ()
    assert invocation.differences(after, cached(after, ())) == ("arguments",)


def test_order_of_members_is_no_difference(tmp_path: Path) -> None:
    call = call_of(written(tmp_path, {"exec": STANZA}, CLUSTER, providerID="a"))
    document = json.loads(call.exec_info)
    document["spec"]["cluster"] = dict(reversed(document["spec"]["cluster"].items()))
    credential = credentials.make(
        0, exec_info=json.dumps(document).encode(), arguments=call.arguments
    )
    assert invocation.differences(call, credential) == ()


def test_arguments_of_a_call_from_the_environment_are_not_compared() -> None:
    call = invocation.find_call(credentials.EXEC_INFO, None, Path("/none"), explicit=False)
    assert invocation.differences(call, cached(call)) == ()
