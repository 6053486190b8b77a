"""KUBERNETES_EXEC_INFO: which values are accepted, and which are refused."""

import base64
import copy
import json
import ssl
from collections.abc import Callable
from typing import Any

import pytest

from authenticator.config.exec_info import encode_as_client_go, is_same_cluster, parse_exec_info
from authenticator.errors import ExecInfoInvalid
from authenticator.model import Server
from tests.harness.pki import Authority, ec_key

CA = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
OTHER_CA = CA.replace("AAAA", "BBBB")
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
    return json.dumps(document).encode()


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    document = copy.deepcopy(GOOD)
    change(document)
    return raw(document)


def test_all_fields_of_the_cluster_are_read() -> None:
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
def test_proxy_may_use_http_or_https(proxy: str) -> None:
    assert parse_exec_info(changed(in_cluster(proxy_url=proxy))).server.proxy == proxy


def in_cluster(**change: object) -> Callable[[dict[str, Any]], object]:
    """Return a change of the cluster; underscores are dashes."""
    named = {key.replace("_", "-"): value for key, value in change.items()}
    return lambda document: document["spec"]["cluster"].update(named)


WRONG: dict[str, tuple[bytes | None, str]] = {
    "absent": (None, "is not set"),
    "not JSON": (b"{", "must be JSON"),
    "nested too deeply": (b"[" * 100_000, "must be JSON"),
    "not an object": (b"[]", "must be an object"),
    "another kind": (changed(lambda d: d.update(kind="Pod")), "must be an ExecCredential"),
    "v1alpha1": (
        changed(lambda d: d.update(apiVersion="client.authentication.k8s.io/v1alpha1")),
        "must be an ExecCredential",
    ),
    "object as version": (
        changed(lambda d: d.update(apiVersion={"v1": 1})),
        "must be an ExecCredential",
    ),
    "no cluster": (changed(lambda d: d["spec"].pop("cluster")), "provideClusterInfo: true"),
    "unverified TLS": (changed(in_cluster(insecure_skip_tls_verify=True)), "not accepted"),
    "http": (changed(in_cluster(server="http://api.example")), "https"),
    "no server": (changed(in_cluster(server=None)), "https"),
    "no host": (changed(in_cluster(server="https://")), "https"),
    "no port": (changed(in_cluster(server="https://a:x")), "https"),
    "port 0": (changed(in_cluster(server="https://a:0")), "https"),
    "a fragment": (changed(in_cluster(server="https://a/#x")), "https"),
    "a query": (changed(in_cluster(server="https://a/?x=1")), "https"),
    "space before the server": (changed(in_cluster(server=" https://api.example")), "https"),
    "line end in the server": (changed(in_cluster(server="https://api.\nexample")), "https"),
    "no CA": (changed(in_cluster(certificate_authority_data=None)), "has no CA"),
    "empty CA": (changed(in_cluster(certificate_authority_data="")), "has no CA"),
    "CA that is not base64": (
        changed(in_cluster(certificate_authority_data="!")),
        "must be base64",
    ),
    "CA that is not text": (changed(in_cluster(certificate_authority_data="/w==")), "has no CA"),
    "socks proxy": (
        changed(in_cluster(proxy_url="socks5://p:1080")),
        "must be an http or https URL",
    ),
    "space in the proxy": (
        changed(in_cluster(proxy_url="http://p .example")),
        "must be an http or https URL",
    ),
    "number for a name": (changed(in_cluster(tls_server_name=5)), "must be a string"),
    "list of settings": (changed(in_cluster(config=[])), "must be an object"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_value_is_refused_with_the_problem(wrong: str) -> None:
    value, problem = WRONG[wrong]
    with pytest.raises(ExecInfoInvalid, match=problem):
        parse_exec_info(value)


def test_value_is_encoded_as_by_client_go() -> None:
    cluster = {
        "config": {"b": "<&>\u2028", "a": ["ä"]},
        "disable-compression": False,
        "certificate-authority-data": "QQ==",
        "server": "https://a.example",
        "tls-server-name": "",
    }
    encoded = encode_as_client_go(cluster, "client.authentication.k8s.io/v1")
    assert encoded.decode() == (
        '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",'
        '"spec":{"cluster":{"server":"https://a.example","certificate-authority-data":"QQ==",'
        '"config":{"a":["ä"],"b":"\\u003c\\u0026\\u003e\\u2028"}},"interactive":false}}\n'
    )


def test_value_has_all_members_of_client_go_in_its_order() -> None:
    """Also fields that are refused: a call from a kubeconfig must not hide unverified TLS."""
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


def test_comment_with_non_ascii_text_in_a_ca_bundle_is_a_bug() -> None:
    """Issue 11, point 29: OpenSSL raised UnicodeEncodeError; only PEM blocks are passed on."""
    ca = Authority.make("Autorité", ec_key()).pair.certificate.decode()
    bundle = f"# Autorité de Zürich\n{ca}# end\n".encode()
    data = base64.b64encode(bundle).decode()
    info = parse_exec_info(changed(in_cluster(certificate_authority_data=data)))
    assert info.server.ca == ca
    ssl.create_default_context(cadata=info.server.ca)


@pytest.mark.parametrize(
    ("url", "ca", "same"),
    [
        ("https://a", CA, True),
        ("https://a", OTHER_CA, True),
        ("https://b", OTHER_CA + CA, True),
        ("https://b", OTHER_CA, False),
    ],
)
def test_cluster_is_the_same_with_the_same_url_or_a_common_ca(
    url: str, ca: str, *, same: bool
) -> None:
    one = Server(url="https://a", ca=CA, tls_server_name=None, proxy=None)
    other = Server(url=url, ca=ca, tls_server_name="x", proxy="http://proxy.example")
    assert is_same_cluster(one, other) is is_same_cluster(other, one) is same
