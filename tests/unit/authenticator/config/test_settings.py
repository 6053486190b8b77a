"""Settings: flags override the exec extension, which overrides defaults. All problems are named."""

import re
from pathlib import Path

import pytest

from authenticator.config.command_line import DEFAULT_KUBECONFIG, parse_arguments
from authenticator.config.setting_table import SETTINGS
from authenticator.config.settings import Settings, resolve
from authenticator.errors import ConfigurationInvalid
from authenticator.providers.provider import Identity
from common.evidence import MAX_EVENT_LOG
from common.names import CLIENT_SIGNER
from tests.builders import credentials

HOST = "Worker-1.Example\n"


def test_defaults() -> None:
    settings = resolve({}, {}, HOST)
    assert settings.node_name == "worker-1.example"
    assert settings.state_dir == Path("/var/lib/kubelet-authenticator")
    assert settings.bootstrap_kubeconfig == Path("/etc/kubernetes/bootstrap-kubelet.conf")
    assert settings.tcti == "device:/dev/tpmrm0"
    assert settings.event_log_file == Path("/sys/kernel/security/tpm0/binary_bios_measurements")
    assert settings.endorsement_key_type == "auto"
    assert settings.timeout_seconds == 60
    assert settings.expiration_seconds is None


GOOD: dict[str, object] = {
    "nodeName": "worker-2",
    "providerID": "aws:///eu-1a/i-0",
    "provider": "openstack:RegionOne",
    "bootstrapKubeconfig": "/b",
    "stateDir": "/s",
    "tcti": "swtpm:path=/x",
    "endorsementKeyType": "ecc",
    "endorsementPasswordFile": "/p",
    "eventLogFile": "/e",
    "pcrSignatureFile": "/v",
    "timeoutSeconds": 30,
    "signerName": "cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm",
    "minimumVersion": "v1",
    "expirationSeconds": 3600,
}


def test_every_setting_is_loaded() -> None:
    assert resolve(GOOD, {}, HOST) == Settings(
        node_name="worker-2",
        node_name_explicit=True,
        provider_id="aws:///eu-1a/i-0",
        provider_id_file=None,
        provider="openstack:RegionOne",
        bootstrap_kubeconfig=Path("/b"),
        state_dir=Path("/s"),
        tcti="swtpm:path=/x",
        endorsement_key_type="ecc",
        endorsement_password_file=Path("/p"),
        event_log_file=Path("/e"),
        pcr_signature_file=Path("/v"),
        timeout_seconds=30,
        signer_name="cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm",
        expiration_seconds=3600,
    )


@pytest.mark.parametrize(
    ("key", "good", "wrong"),
    [
        ("timeoutSeconds", (1, "900"), (0, 901, "1.0", "-1", 1.0, True, "")),
        ("expirationSeconds", (600, "2147483647"), (599, 2**31, "599", 600.0, None)),
        ("endorsementKeyType", ("auto", "rsa", "ecc"), ("RSA", "", None)),
        ("signerName", (CLIENT_SIGNER,), (CLIENT_SIGNER + "x", "", None)),
    ],
)
def test_values_are_accepted_up_to_their_limits(
    key: str, good: tuple[object, ...], wrong: tuple[object, ...]
) -> None:
    for value in good:
        resolve({key: value}, {}, HOST)
    for value in wrong:
        with pytest.raises(ConfigurationInvalid, match=key):
            resolve({key: value}, {}, HOST)


def test_only_a_configured_name_excludes_others() -> None:
    assert resolve({}, {}, HOST).matches_node("worker-1.example")
    assert resolve({}, {}, HOST).matches_node("worker-2"), "host names change"
    assert resolve({"provider": "aws"}, {}, HOST).matches_node("worker-2")
    assert not resolve({"provider": "aws", "nodeName": "worker-1"}, {}, HOST).matches_node(
        "worker-2"
    )


def test_extension_and_flags_give_the_same_settings() -> None:
    flags = [f"{setting.flag}={GOOD[setting.key]}" for setting in SETTINGS if setting.key in GOOD]
    assert resolve({}, parse_arguments(flags).flags, HOST) == resolve(GOOD, {}, HOST)


def test_flags_win() -> None:
    assert resolve(GOOD, {"nodeName": "worker-3"}, HOST).node_name == "worker-3"


def test_file_given_as_flag_wins_over_the_extensions_provider_id(tmp_path: Path) -> None:
    path = tmp_path / "id"
    path.write_text("test:///1\n", encoding="ascii")
    settings = resolve(GOOD, {"providerIDFile": str(path)}, HOST)
    assert settings.required_provider_id() == "test:///1"


WRONG: dict[str, object] = {
    "nodeName": "Worker_2",
    "providerID": "with space",
    "provider": "AWS",
    "bootstrapKubeconfig": "relative",
    "stateDir": "",
    "tcti": 5,
    "endorsementKeyType": "dsa",
    "endorsementPasswordFile": "relative",
    "eventLogFile": "relative",
    "timeoutSeconds": 0,
    "signerName": "kubernetes.io/kube-apiserver-client",
    "minimumVersion": "v2",
    "expirationSeconds": True,
    "surprise": 1,
}


def test_all_problems_are_reported_at_once() -> None:
    with pytest.raises(ConfigurationInvalid) as error:
        resolve(WRONG, {"timeoutSeconds": "soon"}, HOST, ("unknown argument '--x'",))
    for name in (*WRONG, "--timeout-seconds", "'--x'"):
        assert name in error.value.message


@pytest.mark.parametrize("key", WRONG)
def test_each_wrong_value_is_a_problem(key: str) -> None:
    with pytest.raises(ConfigurationInvalid, match=re.escape(key)):
        resolve({**GOOD, key: WRONG[key]}, {}, HOST)


def test_two_provider_ids_exclude_each_other() -> None:
    with pytest.raises(ConfigurationInvalid, match="exclude each other"):
        resolve({**GOOD, "providerIDFile": "/x"}, {}, HOST)


def test_host_name_that_is_no_node_name_is_refused_when_a_name_is_needed() -> None:
    settings = resolve({}, {}, "my host")
    with pytest.raises(ConfigurationInvalid, match="--node-name"):
        settings.with_provider_identity(no_provider)
    named = settings.with_provider_identity(no_provider, credentials.make(0))
    assert named.node_name == "worker-1", "the name in the certificate is the node's"


def no_provider(setting: str) -> Identity:
    raise AssertionError(setting)


def test_request_without_provider_id_is_refused() -> None:
    with pytest.raises(ConfigurationInvalid, match="--provider-id-file"):
        resolve({}, {}, HOST).required_provider_id()


@pytest.mark.parametrize("content", [b"", b"two words", b"\xff", b"x" * 5000, None])
def test_provider_id_file_without_a_provider_id_is_refused(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "id"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationInvalid, match=str(path)):
        resolve({"providerIDFile": str(path)}, {}, HOST).required_provider_id()


def test_password_is_read_without_its_line_end(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_bytes(b"secret \n")
    settings = resolve({"endorsementPasswordFile": str(path)}, {}, HOST)
    assert settings.endorsement_password() == b"secret "
    assert resolve({}, {}, HOST).endorsement_password() == b""
    path.unlink()
    with pytest.raises(ConfigurationInvalid):
        settings.endorsement_password()


def test_missing_event_log_is_left_to_the_signer(tmp_path: Path) -> None:
    path = tmp_path / "log"
    settings = resolve({"eventLogFile": str(path)}, {}, HOST)
    assert settings.event_log() is None
    path.write_bytes(b"log")
    assert settings.event_log() == b"log"
    path.write_bytes(bytes(MAX_EVENT_LOG + 2))
    assert len(settings.event_log() or b"") == MAX_EVENT_LOG + 1, (
        "one byte over the limit, so that the caller refuses it"
    )


@pytest.mark.parametrize(
    "line",
    [
        ["status", "--state-dir", "/s"],
        ["--state-dir", "/s", "status"],
        ["--state-dir=/s", "status"],
    ],
)
def test_flags_may_precede_or_follow_the_command(line: list[str]) -> None:
    parsed = parse_arguments(line)
    assert (parsed.command, parsed.flags) == ("status", {"stateDir": "/s"})


def test_default_command_is_credential() -> None:
    assert parse_arguments([]).command == "credential"


@pytest.mark.parametrize("line", [["--state-dir"], ["status", "--output", "xml"]])
def test_unreadable_command_line_is_an_error_of_one_line(line: list[str]) -> None:
    with pytest.raises(ConfigurationInvalid, match=r"--help$") as raised:
        parse_arguments(line)
    assert "\n" not in raised.value.message


@pytest.mark.parametrize(
    ("line", "command"),
    [
        (["status", "--manifest"], "status"),
        (["--if-missing"], "credential"),
        (["status", "now"], "status"),
    ],
)
def test_argument_of_another_command_is_a_problem(line: list[str], command: str) -> None:
    [problem] = parse_arguments(line).problems
    assert problem == f"unknown argument {line[-1]!r} of {command}"


def test_mistyped_flag_is_named_with_its_value() -> None:
    with pytest.raises(ConfigurationInvalid, match=r"unknown argument '--stat'; .*'/s'"):
        parse_arguments(["--stat", "/s"])


def test_help_of_a_command_has_only_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_arguments(["serving", "--help"])
    text = capsys.readouterr().out
    assert "--if-missing" in text
    assert "--provider-id" in text
    assert "--manifest" not in text


def test_explicit_kubeconfig_is_distinguished_from_the_default() -> None:
    assert parse_arguments(["renew"]).kubeconfig_explicit is False
    parsed = parse_arguments(["renew", "--kubeconfig", DEFAULT_KUBECONFIG])
    assert (parsed.kubeconfig, parsed.kubeconfig_explicit) == (Path(DEFAULT_KUBECONFIG), True)
