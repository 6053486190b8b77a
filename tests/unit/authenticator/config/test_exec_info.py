"""KUBERNETES_EXEC_INFO: what is taken from it, and what is refused."""

import base64
import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authenticator.config.exec_info import encode_as_client_go, parse_exec_info
from authenticator.errors import ExecInfoInvalid

CA = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
CLUSTER: dict[str, Any] = {
    "server": "https://api.example:6443/prefix/",
    "tls-server-name": "kubernetes",
    "certificate-authority-data": base64.b64encode(CA.encode()).decode(),
    "proxy-url": "http://proxy.example:3128",
    "config": {"nodeName": "worker-1"},
}
GOOD: dict[str, Any] = {
    "kind": "ExecCredential",
    "apiVersion": "client.authentication.k8s.io/v1",
    "spec": {"cluster": CLUSTER, "interactive": False},
}


def raw(document: object) -> bytes:
    """Write the variable's value."""
    return json.dumps(document).encode()


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    """Return the good value with one change."""
    document = copy.deepcopy(GOOD)
    change(document)
    return raw(document)


def test_everything_is_taken_from_the_cluster() -> None:
    info = parse_exec_info(raw(GOOD))
    assert info.server.url == "https://api.example:6443/prefix"
    assert info.server.ca == CA
    assert info.server.tls_server_name == "kubernetes"
    assert info.server.proxy == "http://proxy.example:3128"
    assert info.settings == {"nodeName": "worker-1"}
    assert info.raw == raw(GOOD)


def test_v1beta1_is_answered_with_v1beta1() -> None:
    version = "client.authentication.k8s.io/v1beta1"
    assert parse_exec_info(changed(lambda d: d.update(apiVersion=version))).api_version == version


def test_optional_parts_may_be_absent_or_empty() -> None:
    info = parse_exec_info(
        changed(
            lambda d: (
                d["spec"]["cluster"].pop("tls-server-name"),
                d["spec"]["cluster"].update({"proxy-url": ""}),
                d["spec"]["cluster"].update(config=None),
            )
        )
    )
    assert (info.server.tls_server_name, info.server.proxy, info.settings) == (None, None, {})


@pytest.mark.parametrize("proxy", ["http://p.example:1", "https://p.example:1"])
def test_proxy_may_be_either_http(proxy: str) -> None:
    assert parse_exec_info(changed(in_cluster(proxy_url=proxy))).server.proxy == proxy


def in_cluster(**change: object) -> Callable[[dict[str, Any]], object]:
    """Return a change of the cluster; underscores are dashes."""
    named = {key.replace("_", "-"): value for key, value in change.items()}
    return lambda document: document["spec"]["cluster"].update(named)


WRONG: dict[str, tuple[bytes | None, str]] = {
    "absent": (None, "is not set"),
    "no JSON": (b"{", "not JSON"),
    "nested without end": (b"[" * 100_000, "not JSON"),
    "no object": (b"[]", "not an object"),
    "another kind": (changed(lambda d: d.update(kind="Pod")), "no ExecCredential"),
    "v1alpha1": (
        changed(lambda d: d.update(apiVersion="client.authentication.k8s.io/v1alpha1")),
        "no ExecCredential",
    ),
    "object as version": (changed(lambda d: d.update(apiVersion={"v1": 1})), "no ExecCredential"),
    "no cluster": (changed(lambda d: d["spec"].pop("cluster")), "provideClusterInfo: true"),
    "unverified TLS": (changed(in_cluster(insecure_skip_tls_verify=True)), "refused"),
    "http": (changed(in_cluster(server="http://api.example")), "https"),
    "no server": (changed(in_cluster(server=None)), "https"),
    "no host": (changed(in_cluster(server="https://")), "https"),
    "no port": (changed(in_cluster(server="https://a:x")), "https"),
    "port 0": (changed(in_cluster(server="https://a:0")), "https"),
    "a fragment": (changed(in_cluster(server="https://a/#x")), "https"),
    "a query": (changed(in_cluster(server="https://a/?x=1")), "https"),
    "blank before the server": (changed(in_cluster(server=" https://api.example")), "https"),
    "line end in the server": (changed(in_cluster(server="https://api.\nexample")), "https"),
    "no CA": (changed(in_cluster(certificate_authority_data=None)), "has no CA"),
    "empty CA": (changed(in_cluster(certificate_authority_data="")), "has no CA"),
    "CA that is no base64": (changed(in_cluster(certificate_authority_data="!")), "not base64"),
    "CA that is no text": (changed(in_cluster(certificate_authority_data="/w==")), "not base64"),
    "socks proxy": (changed(in_cluster(proxy_url="socks5://p:1080")), "neither http nor https"),
    "blank in the proxy": (changed(in_cluster(proxy_url="http://p .example")), "neither http"),
    "number for a name": (changed(in_cluster(tls_server_name=5)), "not a string"),
    "list of settings": (changed(in_cluster(config=[])), "not an object"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_value_is_refused_with_what_is_wrong(wrong: str) -> None:
    value, told = WRONG[wrong]
    with pytest.raises(ExecInfoInvalid, match=told):
        parse_exec_info(value)


@given(st.binary())
def test_nothing_else_escapes(value: bytes) -> None:
    with pytest.raises(ExecInfoInvalid):
        parse_exec_info(value)


def test_value_is_made_as_client_go_makes_it() -> None:
    cluster = {
        "config": {"b": "<&>\u2028", "a": ["ä"]},
        "disable-compression": False,
        "certificate-authority-data": "QQ==",
        "server": "https://a.example",
        "tls-server-name": "",
    }
    made = encode_as_client_go(cluster, "client.authentication.k8s.io/v1")
    assert made.decode() == (
        '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",'
        '"spec":{"cluster":{"server":"https://a.example","certificate-authority-data":"QQ==",'
        '"config":{"a":["ä"],"b":"\\u003c\\u0026\\u003e\\u2028"}},"interactive":false}}\n'
    )


def test_value_holds_all_that_client_go_gives_in_its_order() -> None:
    """Above all what is refused: unverified TLS must not be overlooked where a call is made up."""
    cluster = {
        "config": {"a": 1},
        "disable-compression": True,
        "proxy-url": "http://p.example",
        "certificate-authority-data": "QQ==",
        "insecure-skip-tls-verify": True,
        "tls-server-name": "kubernetes",
        "server": "https://a.example",
        "certificate-authority": "left out",
    }
    assert encode_as_client_go(cluster, "v").decode() == (
        '{"kind":"ExecCredential","apiVersion":"v","spec":{"cluster":{'
        '"server":"https://a.example","tls-server-name":"kubernetes",'
        '"insecure-skip-tls-verify":true,"certificate-authority-data":"QQ==",'
        '"proxy-url":"http://p.example","disable-compression":true,"config":{"a":1}},'
        '"interactive":false}}\n'
    )
