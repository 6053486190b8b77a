"""Kubeconfigs: what is accepted, and that every other key is refused by name."""

import base64
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509

from signer.errors import KubeconfigRefused
from signer.kube.transport import kubeconfig
from signer.kube.transport.kubeconfig import ClientCertificate, in_cluster, parse_kubeconfig
from tests.harness import pki

CA = "-----BEGIN CERTIFICATE-----\nY2E=\n-----END CERTIFICATE-----\n"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nY2VydA==\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\na2V5\n-----END PRIVATE KEY-----\n"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def document() -> dict[str, Any]:
    """Return what Cluster API writes."""
    cluster = {"server": "https://api.example:6443", "certificate-authority-data": encoded(CA)}
    user = {"client-certificate-data": encoded(CERTIFICATE), "client-key-data": encoded(KEY)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
        "preferences": {},
    }


def written(config: dict[str, Any]) -> bytes:
    return yaml.safe_dump(config).encode()


def refused(config: dict[str, Any] | bytes) -> str:
    with pytest.raises(KubeconfigRefused) as caught:
        parse_kubeconfig(config if isinstance(config, bytes) else written(config))
    return caught.value.message


def test_kubeconfig_of_cluster_api_is_accepted() -> None:
    connection = parse_kubeconfig(written(document()))
    assert connection.server == "https://api.example:6443"
    assert connection.host == "api.example"
    assert connection.ca == CA
    assert connection.certificate == ClientCertificate(certificate=CERTIFICATE, key=KEY)
    assert connection.token is None


def test_token_is_accepted_instead_of_a_certificate() -> None:
    config = document()
    config["users"][0]["user"] = {"token": "abc.def"}
    connection = parse_kubeconfig(written(config))
    assert (connection.token, connection.certificate) == ("abc.def", None)


def test_only_the_current_context_is_read() -> None:
    config = document()
    config["contexts"].append({"name": "y", "context": {"cluster": "none", "user": "none"}})
    config["users"].append({"name": "other", "user": {"exec": {"command": "/bin/sh"}}})
    assert parse_kubeconfig(written(config)).host == "api.example"


def test_repr_shows_no_secret() -> None:
    config = document()
    config["users"][0]["user"]["token"] = "very-secret"
    shown = repr(parse_kubeconfig(written(config)))
    assert "very-secret" not in shown
    assert "PRIVATE" not in shown


USER, CLUSTER = "users.0.user", "clusters.0.cluster"
PLAIN = "server must have no user, query or fragment"
NOT_PEM = "certificate-authority-data must be PEM in base64"
ONE_USER = "exactly one of users must have the name that refers to it"
NOT_PRINTABLE = "token must be printable ASCII without spaces"
REFUSED: list[tuple[str, str, object, str]] = [
    # The usual loaders run `exec` and read files: a writer of the Secret would control the pod.
    *(
        (USER, key, value, f"the user has {key}, which is not accepted")
        for key, value in (
            ("exec", {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/sh"}),
            ("auth-provider", {"name": "gcp"}),
            ("client-certificate", "/etc/passwd"),
            ("client-key", "/etc/passwd"),
            ("tokenFile", "/var/run/secrets/kubernetes.io/serviceaccount/token"),
            ("username", "admin"),
            ("password", "admin"),
            ("as", "system:admin"),
            ("as-uid", "0"),
            ("as-groups", ["system:masters"]),
            ("as-user-extra", {"a": ["b"]}),
            ("anything-new", "x"),
        )
    ),
    *(
        (CLUSTER, key, value, f"the cluster has {key}, which is not accepted")
        for key, value in (
            ("certificate-authority", "/etc/ssl/certs/ca-certificates.crt"),
            ("proxy-url", "http://evil.example"),
            ("anything-new", "x"),
        )
    ),
    ("", "extras", {}, "the kubeconfig has extras, which is not accepted"),
    ("contexts.0.context", "exec", "x", "the context has exec, which is not accepted"),
    ("users.0", "more", "x", "an entry of users has more, which is not accepted"),
    ("", "kind", "Secret", "it must be a Config of version v1"),
    ("", "clusters", "x", "clusters must be a list"),
    ("", "users", "x", "users must be a list"),
    ("", "contexts", "x", "contexts must be a list"),
    ("", "users", document()["users"] + document()["users"], ONE_USER),
    (CLUSTER, "insecure-skip-tls-verify", True, "insecure-skip-tls-verify is not accepted"),
    (CLUSTER, "server", "http://api.example", "server must start with https://"),
    (CLUSTER, "server", "HTTPS://api.example", "server must start with https://"),
    (CLUSTER, "server", "unix:///var/run/x", "server must start with https://"),
    (CLUSTER, "server", "https://", "server must be a URL"),
    (CLUSTER, "server", "https://api.example:99999", "server must be a URL"),
    (CLUSTER, "server", "https://api.example:0", "server must be a URL"),
    (CLUSTER, "server", "https://api example", "server must be a URL"),
    (CLUSTER, "server", "https://user:pass@api.example", PLAIN),
    (CLUSTER, "server", "https://api.example/?a=b", PLAIN),
    (CLUSTER, "server", "https://api.example/#a", PLAIN),
    (CLUSTER, "tls-server-name", "a\nb", "tls-server-name must be a host name"),
    (CLUSTER, "certificate-authority-data", "not base64!", NOT_PEM),
    (CLUSTER, "certificate-authority-data", encoded("no PEM"), NOT_PEM),
    (CLUSTER, "certificate-authority-data", encoded("\u00e4"), NOT_PEM),
    (USER, "token", "a b", NOT_PRINTABLE),
    (USER, "token", "a\r\nX-Remote-User: admin", NOT_PRINTABLE),
    (USER, "token", "\u00e4", NOT_PRINTABLE),
    (USER, "client-key-data", None, "client-key-data is missing"),
    (USER, "client-certificate-data", None, "client-certificate-data is missing"),
    ("users.0", "user", {}, "the user must have an inline certificate and key, or a token"),
]
"""Where a kubeconfig is changed, the key and its value (`None` deletes it), and the refusal."""


@pytest.mark.parametrize(("where", "key", "value", "message"), REFUSED)
def test_what_is_not_known_to_be_harmless_is_refused(
    where: str, key: str, value: object, message: str
) -> None:
    config = document()
    place: Any = config
    for step in filter(None, where.split(".")):
        place = place[int(step) if step.isdecimal() else step]
    if value is None:
        del place[key]
    else:
        place[key] = value
    assert refused(config) == message


def test_harmless_settings_of_the_cluster_are_kept() -> None:
    config = document()
    config["clusters"][0]["cluster"] |= {
        "server": "https://rancher.example/k8s/clusters/c-1/",
        "tls-server-name": "kubernetes",
        "insecure-skip-tls-verify": False,
    }
    connection = parse_kubeconfig(written(config))
    assert connection.server == "https://rancher.example/k8s/clusters/c-1"
    assert connection.server_name == "kubernetes"


@pytest.mark.parametrize("host", ["\u4e00" * 63, "a." * 126 + "aa"])
def test_host_that_dns_cannot_hold_is_refused(host: str) -> None:
    """To look up a host of 4,000 letters beyond ASCII kept the thread of all watches for 2.2 s."""
    config = document()
    config["clusters"][0]["cluster"]["server"] = f"https://{host}"
    assert refused(config) == (
        "the host of server must be at most 253 ASCII characters: write other letters as punycode"
    )
    config["clusters"][0]["cluster"]["server"] = f"https://{'a.' * 126}a"
    assert len(parse_kubeconfig(written(config)).host) == 253


def test_ambiguous_yaml_is_refused() -> None:
    """Aliases can build documents of any size; readers of two equal keys choose differently."""
    assert refused(b"a: &x [1]\nb: *x\n") == "YAML aliases are not accepted"
    assert refused(b"kind: Config\nkind: Config\n") == "a key occurs twice"
    assert refused(b"- a\n") == "the kubeconfig must be a mapping"
    assert refused(b"") == "the kubeconfig must be a mapping"
    assert refused(b"[" * 5000) == "it is nested too deeply"
    assert refused(b"\xff\xfe\x00") == "it is not readable YAML"
    assert refused(b" " * (128 << 10) + b"a: b") == "it must not exceed 128 KiB"


POISONED = [
    b'a: "\\UFFFFFFFF"',
    b"%YAML " + b"9" * 5000 + b".1\n--- a",
    b"%YAML 1." + b"9" * 5000 + b"\n--- a",
    b'a: "\\q"',
    b"a: \x00",
    b"{" * 5000,
    b"? [a]\n: b",
    b"a: b\n--- c",
]


@pytest.mark.parametrize("parser", [kubeconfig._Parser, yaml.BaseLoader], ids=["C", "Python"])
@pytest.mark.parametrize("poison", POISONED, ids=range(len(POISONED)))
def test_poisoned_yaml_is_refused_by_either_parser(
    monkeypatch: pytest.MonkeyPatch, parser: type[yaml.BaseLoader], poison: bytes
) -> None:
    """Escapes and directives raise ValueError and OverflowError in the Python parser."""
    monkeypatch.setattr(kubeconfig, "_Parser", parser)
    assert refused(poison)


@pytest.mark.parametrize("parser", [kubeconfig._Parser, yaml.BaseLoader], ids=["C", "Python"])
def test_either_parser_reads_the_same(
    monkeypatch: pytest.MonkeyPatch, parser: type[yaml.BaseLoader]
) -> None:
    monkeypatch.setattr(kubeconfig, "_Parser", parser)
    connection = parse_kubeconfig(written(document()))
    assert (connection.host, connection.ca) == ("api.example", CA)


def test_hostile_yaml_takes_little_time() -> None:
    """128 KiB of it took 3 s; a Secret may have 16 KiB."""
    assert issubclass(kubeconfig._Parser, yaml.CBaseLoader)
    begun = time.process_time()
    refused(b"a: [" + b"a," * (8 << 10) + b"]")
    assert time.process_time() - begun < 1.0


def test_yaml_tag_constructs_no_object() -> None:
    config = b"kind: !!python/object/apply:os.system [touch /tmp/x]\n"
    assert refused(config) == "it must be a Config of version v1"


def test_in_cluster_connection_uses_the_service_account(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigRefused):
        in_cluster("10.96.0.1", "443", tmp_path)
    (tmp_path / "ca.crt").write_text(CA)
    (tmp_path / "token").write_text("abc")
    assert in_cluster("10.96.0.1", "443", tmp_path).server == "https://10.96.0.1:443"
    assert in_cluster("fd00::1", "443", tmp_path).server == "https://[fd00::1]:443"


def test_expiry_is_that_of_the_first_certificate() -> None:
    authority = pki.Authority.make("test", pki.ec_key())
    pair = authority.client("signer", "group")
    text = (pair.certificate + authority.pair.certificate).decode()
    expected = x509.load_pem_x509_certificate(pair.certificate).not_valid_after_utc
    assert ClientCertificate(certificate=text, key="").not_after() == expected


def test_certificate_that_cannot_be_read_has_no_expiry() -> None:
    """A tenant writes it; the connection then fails with an error of its own."""
    text = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    assert ClientCertificate(certificate=text, key="").not_after() is None
