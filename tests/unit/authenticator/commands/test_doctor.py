"""doctor: it finds the one problem of a node, and changes nothing."""

import io
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from authenticator.checks.doctor_check import Finding
from authenticator.commands import doctor
from authenticator.commands.run import CommandContext
from authenticator.config.command_line import Arguments
from authenticator.config.settings import Settings
from authenticator.errors import (
    ConfigurationInvalid,
    ExecInfoInvalid,
    RequestDenied,
    TpmPermissionDenied,
    Unauthorized,
)
from authenticator.model import Deadline
from authenticator.state.run_record import RunRecorder
from common.challenge import Challenge, encode_challenge
from signer.operator_cli.checks.findings import DoctorCheck, FindingResult
from tests.builders import credentials
from tests.builders.healthy_node import KUBEADM_FLAGS, HealthyNode, drop_in
from tests.builders.pending_exchange import PENDING
from tests.fakes.clock import FakeClock
from tests.fakes.tpm import FakeTpm


@pytest.fixture
def node(tmp_path: Path) -> HealthyNode:
    return HealthyNode(tmp_path, FakeClock(), FakeTpm())


def test_healthy_node_has_no_problem(node: HealthyNode) -> None:
    findings = node.findings()
    assert [f for f in findings.values() if f.remedy] == []
    assert {doctor.format_text(f)[:7] for f in findings.values()} == {"ok     "}


def test_json_has_the_fields_of_the_doctor_of_operators() -> None:
    """One program reads both; the findings of a node are about no other object."""
    found = Finding(check="TPM", detail="no device", remedy="load its driver").document()
    other = DoctorCheck("TPM", "node-1").problem("no device", "load its driver").document()
    assert found == {key: value for key, value in other.items() if key != "object"}
    skipped = Finding(check="TPM", detail="not checked", remedy="first", is_skipped=True)
    assert skipped.document()["result"] == FindingResult.UNKNOWN.value
    assert Finding(check="TPM", detail="one").document()["result"] == FindingResult.OK.value


Break = Callable[[HealthyNode], object]
KUBECONFIG = "etc/kubernetes/kubelet.conf"
BOOTSTRAP = "etc/kubernetes/bootstrap.conf"
CONFIGURATION = "var/lib/kubelet/config.yaml"
ENVIRONMENT = "etc/default/kubelet"
CERTIFICATE = "state/credential.pem"


def user(make: Callable[[HealthyNode], dict[str, object]]) -> Break:
    return lambda node: node.write(KUBECONFIG, node.kubeconfig(make(node)))


def stanza(**change: object) -> Break:
    return user(lambda node: {"exec": node.stanza(**change)})


def written(name: str, content: object) -> Break:
    return lambda node: node.write(name, content)


def lost(*names: str) -> Break:
    def lose(node: HealthyNode) -> None:
        for name in names:
            (node.root / name).unlink()

    return lose


def set_to(**members: object) -> Break:
    return lambda node: vars(node).update(members)


def identity(**change: Any) -> Break:  # noqa: ANN401 - of settings
    """Give the machine another identity than that of its certificate."""
    return lambda node: vars(node).update(settings=replace(as_settings(node), **change))


def as_settings(node: HealthyNode) -> Settings:
    assert isinstance(node.settings, Settings)
    return node.settings


def signatures(node: HealthyNode, number: int) -> None:
    """Write a file with signatures of PCR values."""
    node.settings = replace(as_settings(node), pcr_signature_file=node.root / "signatures")
    entry = {"pcrs": [11], "sig": "A" * 1000}
    (node.root / "signatures").write_text(json.dumps({"sha256": [entry] * number}))


def sha384_only(node: HealthyNode) -> None:
    node.tpm.pcrs["sha384"] = node.tpm.pcrs.pop("sha256")


def challenged(node: HealthyNode) -> None:
    """Challenge a TPM for a bank that it has not allocated."""
    sha384_only(node)
    challenge = Challenge(
        issued_at="2026-11-21T06:40:00Z",
        key="f1a2e524dce39af2",
        credential_blob=b"blob",
        encrypted_secret=b"secret",
        pcrs={"sha256": (0,)},
        event_log=False,
        pcr_signatures=False,
        tag="tag",
    )
    with node.store() as store:
        store.save_pending(replace(PENDING, challenge=encode_challenge(challenge)))


OTHER_NODE = (
    "is node worker-2, provider ID test:///1, and the certificate is of node worker-1, provider ID"
)
OTHER_MACHINE = (
    "provider ID test:///2, and the certificate is of node worker-1, provider ID test:///1"
)
NO_PROGRAM = "not checked: the kubeconfig does not run this program"
ROTATES = "--kubeconfig=/k --rotate-certificates"
BREAKS: dict[str, tuple[str, Break, str]] = {
    "interactive mode": ("kubeconfig", stanza(interactiveMode="IfAvailable"), "interactiveMode"),
    "no cluster info": ("kubeconfig", stanza(provideClusterInfo=False), "provideClusterInfo"),
    "old version": ("kubeconfig", stanza(apiVersion="v1alpha1"), "apiVersion"),
    "relative command": ("kubeconfig", stanza(command="kubelet-authenticator-tpm"), "absolute"),
    "no command": ("program", stanza(command=None), "cannot be run"),
    "another credential": (
        "kubeconfig",
        user(lambda node: {"exec": node.stanza(), "token": "x"}),
        "besides exec",
    ),
    "certificate of another node": ("identity", identity(node_name="worker-2"), OTHER_NODE),
    "another machine's": ("identity", identity(provider_id="test:///2"), OTHER_MACHINE),
    "no stanza": ("kubeconfig", user(lambda _: {"token": "x"}), "does not run this program"),
    "no kubeconfig": ("kubeconfig", lost(KUBECONFIG), "No such file"),
    "no program in the kubeconfig": ("program", user(lambda _: {"token": "x"}), NO_PROGRAM),
    "no kubeconfig for the program": ("program", lost(KUBECONFIG), NO_PROGRAM),
    "no program": ("program", lost("usr/bin/kubelet-authenticator-tpm"), "cannot be run"),
    "rotation": (
        "rotateCertificates",
        written(CONFIGURATION, {"rotateCertificates": True}),
        "rotateCertificates: true",
    ),
    "rotation by a flag in capitals": (
        "rotateCertificates",
        drop_in("etc", "30-site.conf", f"{ROTATES}=TRUE"),
        "30-site.conf has --rotate-certificates",
    ),
    "list for a kubelet configuration": (
        "rotateCertificates",
        written(CONFIGURATION, "[]"),
        "not a kubelet configuration",
    ),
    "broken kubelet configuration": (
        "rotateCertificates",
        written(CONFIGURATION, "{"),
        "not YAML",
    ),
    "kubeadm's drop-in": (
        "bootstrap flags",
        drop_in("usr/lib", "10-kubeadm.conf", KUBEADM_FLAGS),
        "10-kubeadm.conf has --bootstrap-kubeconfig",
    ),
    "rotation by a flag": (
        "rotateCertificates",
        drop_in("etc", "30-site.conf", ROTATES),
        "30-site.conf has --rotate-certificates",
    ),
    "flag in the environment": (
        "bootstrap flags",
        written(ENVIRONMENT, "KUBELET_EXTRA_ARGS=--bootstrap-kubeconfig=/b\n"),
        "etc/default/kubelet has --bootstrap-kubeconfig",
    ),
    "no API server": (
        "settings",
        set_to(exec_info=ExecInfoInvalid("no CA")),
        "ExecInfoInvalid: no CA",
    ),
    "wrong settings": (
        "settings",
        set_to(settings=ConfigurationInvalid("no provider ID")),
        "ConfigurationInvalid: no provider ID",
    ),
    "state directory of another user": (
        "state directory",
        lambda node: os.chown(node.root / "state", 65534, 65534),
        "StateDirectoryUnsafe",
    ),
    "no TPM permission": (
        "TPM",
        lambda node: node.tpm.errors.append(TpmPermissionDenied("may not")),
        "TpmPermissionDenied",
    ),
    "no bootstrap credential and no certificate": (
        "bootstrap credential",
        lost(BOOTSTRAP, CERTIFICATE),
        "there is no certificate",
    ),
    "no bank at all": ("TPM", lambda node: node.tpm.pcrs.clear(), "PcrBankNotAllocated"),
    "bank that is not allocated": ("TPM", challenged, "PcrBankNotAllocated"),
    "signatures that do not fit": (
        "PCR signatures",
        lambda node: signatures(node, 20),
        "an answer has room for",
    ),
    "clock": ("clock", set_to(skew=3600.0), "+3600 s off"),
    "no permission": ("API server", set_to(allowed=False), "may not create"),
    "refused": ("API server", set_to(refusal=Unauthorized("401")), "Unauthorized"),
    "refused, for the clock": ("clock", set_to(refusal=Unauthorized("401")), "not checked: 401"),
    "expired certificate": (
        "certificate",
        lambda node: node.clock.pass_time(7 * credentials.DAY),
        "it expired at",
    ),
    "no certificate": ("certificate", lost(CERTIFICATE), "there is no certificate"),
}


@pytest.mark.parametrize("broken", BREAKS)
def test_problem_is_found_with_its_remedy(node: HealthyNode, broken: str) -> None:
    check, break_it, detail = BREAKS[broken]
    break_it(node)
    finding = node.findings()[check]
    assert finding.remedy
    assert detail in finding.detail
    assert f"wrong  {check}: " in doctor.format_text(finding)


def test_any_bank_is_good_enough_before_a_challenge(node: HealthyNode) -> None:
    """The policy may ask for the one that the TPM has."""
    sha384_only(node)
    finding = node.findings()["TPM"]
    assert (finding.remedy, finding.detail.endswith("PCRs of sha384")) == ("", True)


def test_finding_is_printed_before_the_next_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a server that does not answer, nothing was printed for 20 seconds."""
    out = io.StringIO()
    checks = [("first", "", lambda _: "done"), ("second", "", lambda _: repr(out.getvalue()))]
    monkeypatch.setattr(doctor, "_CHECKS", checks)
    arguments = Arguments(kubeconfig=Path("/none"), kubeconfig_explicit=True)
    context = CommandContext(arguments=arguments, exec_info=None, program="", out=out)
    assert doctor.run(context) == 0
    assert out.getvalue().splitlines()[1] == r"ok     second: 'ok     first: done\n'"


def test_later_drop_in_wins(node: HealthyNode) -> None:
    drop_in("usr/lib", "10-kubeadm.conf", KUBEADM_FLAGS)(node)
    drop_in("etc", "20-attestation.conf", "--kubeconfig=/k")(node)
    assert node.findings()["bootstrap flags"].remedy == ""


def test_rotation_flag_overrides_the_configuration_of_kubeadm(node: HealthyNode) -> None:
    """The configuration of kubeadm always has rotateCertificates: true."""
    node.write("var/lib/kubelet/config.yaml", {"rotateCertificates": True})
    drop_in("etc", "20-site.conf", "--kubeconfig=/k --rotate-certificates=false")(node)
    assert node.findings()["rotateCertificates"].remedy == ""
    node.write("etc/default/kubelet", 'KUBELET_EXTRA_ARGS="--rotate-certificates=true --v=2"\n')
    assert "etc/default/kubelet" in node.findings()["rotateCertificates"].detail
    assert node.findings()["rotateCertificates"].remedy


def test_comment_in_a_drop_in_is_ignored(node: HealthyNode) -> None:
    line = '# Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/b"\n'
    node.write("etc/systemd/system/kubelet.service.d/20-site.conf", line)
    assert node.findings()["bootstrap flags"].remedy == ""


def test_wrong_settings_do_not_fail_checks_that_need_no_settings(node: HealthyNode) -> None:
    node.settings = ConfigurationInvalid("no provider ID")
    assert node.findings()["TPM"].detail == "not checked: the settings are wrong"
    assert node.findings()["rotateCertificates"].remedy == ""


def test_unknown_api_server_does_not_fail_the_tpm_check(node: HealthyNode) -> None:
    node.exec_info = ExecInfoInvalid("no CA")
    assert node.findings()["clock"].detail == "not checked: the API server is not known"
    assert node.findings()["TPM"].remedy == ""


def test_kubelet_without_configuration_file_does_not_rotate(node: HealthyNode) -> None:
    (node.root / "var/lib/kubelet/config.yaml").unlink(missing_ok=True)
    finding = node.findings()["rotateCertificates"]
    assert finding.remedy == ""
    assert "does not exist" in finding.detail


def test_entry_kubeconfig_is_found_where_there_is_no_bootstrap_kubeconfig(
    node: HealthyNode,
) -> None:
    bootstrap = node.root / "etc/kubernetes/bootstrap.conf"
    bootstrap.rename(bootstrap.with_name("entry-kubelet.conf"))
    assert "entry-kubelet.conf has one" in node.findings()["bootstrap credential"].detail


def test_missing_bootstrap_credential_is_fine_with_a_certificate(node: HealthyNode) -> None:
    (node.root / "etc/kubernetes/bootstrap.conf").unlink()
    assert "not needed" in node.findings()["bootstrap credential"].detail


def files(root: Path) -> dict[Path, int]:
    """Return every path below a directory with its time of change, which a chmod sets, too."""
    return {path: path.stat().st_ctime_ns for path in [root, *root.rglob("*")]}


def test_doctor_changes_nothing(node: HealthyNode) -> None:
    before = files(node.root)
    node.findings()
    assert files(node.root) == before


def test_state_directory_that_others_can_use_is_reported_and_not_changed(node: HealthyNode) -> None:
    (node.root / "state").chmod(0o755)
    before = files(node.root)
    finding = node.findings()["state directory"]
    assert "other users can read or write" in finding.detail
    assert "(mode 0755)" in finding.detail
    assert "mode 0700" in finding.remedy
    assert files(node.root) == before


def test_doctor_creates_no_state_directory(node: HealthyNode) -> None:
    state = node.root / "state"
    for path in state.iterdir():
        path.unlink()
    state.rmdir()
    before = files(node.root)
    findings = node.findings()
    assert files(node.root) == before
    assert (
        findings["state directory"].detail
        == f"{state} does not exist yet: the first call creates it"
    )
    assert findings["state directory"].remedy == ""


def test_doctor_does_not_wait_for_the_lock(node: HealthyNode) -> None:
    with node.store() as store, store.lock(Deadline(node.clock, 0)):
        assert [f for f in node.findings().values() if f.remedy] == []
    assert node.clock.slept == []


def test_malformed_date_header_does_not_stop_doctor(node: HealthyNode) -> None:
    node.has_date = False
    findings = node.findings()
    assert "no valid Date header" in findings["clock"].detail
    assert findings["clock"].remedy
    assert findings["certificate"].remedy == ""


def test_last_failure_is_reported_with_its_remedy(node: HealthyNode) -> None:
    with node.store() as store:
        error = RequestDenied("denied: EndorsementKeyBanned", detail="EndorsementKeyBanned")
        store.append_run_record(RunRecorder(node.clock, "needed").record("failed", error))
    finding = node.findings()["last run"]
    assert "RequestDenied: denied: EndorsementKeyBanned" in finding.detail
    assert "docs/reasons.md" in finding.remedy


def test_failure_before_a_success_is_not_reported(node: HealthyNode) -> None:
    with node.store() as store:
        recorder = RunRecorder(node.clock, "needed")
        store.append_run_record(recorder.record("failed", RequestDenied("denied")))
        store.append_run_record(recorder.record("done"))
    assert node.findings()["last run"].remedy == ""


def test_difference_between_kubeconfig_and_cache_is_reported(node: HealthyNode) -> None:
    node.differences = ("providerID", "tcti")
    finding = node.findings()["cache"]
    assert finding.detail.endswith("differences: providerID, tcti")
    assert "renew" in finding.remedy


def test_killed_run_is_reported_when_it_cannot_be_running(node: HealthyNode) -> None:
    """A run that ended without a record counted as a success."""
    with node.store() as store:
        store.append_run_record(RunRecorder(node.clock, "renewal-due").record("started"))
    assert node.findings()["last run"].remedy == ""
    node.clock.pass_time(16 * 60)
    assert "renewal-due: it was killed" in node.findings()["last run"].detail


def test_overdue_renewal_is_a_problem_whatever_the_records_say(node: HealthyNode) -> None:
    renew_at = node.credential().renew_at
    node.clock.pass_time(renew_at - node.clock.now() + 300)
    assert node.findings()["certificate"].remedy == ""
    node.clock.pass_time(1)
    assert "its renewal is overdue since" in node.findings()["certificate"].detail
    assert node.findings()["last run"].remedy == ""


def run_kubelet(node: HealthyNode, *, started: float, pid_namespace: str = "host") -> None:
    """Let process 42 be a kubelet that started at this boot time, and 43 one of a pod."""
    fields = ["0"] * 50
    fields[19] = str(round(started * os.sysconf("SC_CLK_TCK")))
    node.write("proc/42/stat", f"42 (kubelet) {' '.join(fields)}")
    node.write("proc/43/stat", "")
    (node.root / "proc/43/stat").write_bytes(b"43 (\xff\xfe) " + " ".join(fields).encode())
    for process, namespace in (("42", pid_namespace), ("43", "pod"), ("self", "host")):
        path = node.root / "proc" / process / "ns/pid"
        path.parent.mkdir(parents=True)
        path.symlink_to(namespace)


def renewed(node: HealthyNode, seconds_ago: int, served: bytes = b"") -> HealthyNode:
    """Replace the certificate of the node by one that came a while ago, and was `served`."""
    with node.store() as store:
        store.save_credential(credentials.make(int(node.clock.now()) - seconds_ago))
    credentials.write_private(node.root / "state/served", served)
    return node


def test_kubelet_that_holds_an_older_certificate_is_reported(node: HealthyNode) -> None:
    """As after `renew`: only the cache was checked, and the kubelet does not present that one."""
    run_kubelet(renewed(node, 600), started=100)
    finding = node.findings()["kubelet's certificate"]
    assert (
        "the kubelet (process 42) has not asked for the certificate in the cache" in finding.detail
    )
    assert "systemctl restart kubelet" in finding.remedy


HOLDERS: dict[str, Callable[[HealthyNode], object]] = {
    "was served it": lambda node: run_kubelet(renewed(node, 600, served=b"42 1"), started=100),
    "started later": lambda node: run_kubelet(renewed(node, 600), started=500),
    "will ask within two minutes": lambda node: run_kubelet(renewed(node, 100), started=100),
    "runs in a container": lambda node: run_kubelet(
        renewed(node, 600), started=100, pid_namespace="container"
    ),
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_kubelet_that_may_hold_the_certificate_is_no_problem(
    node: HealthyNode, holder: str
) -> None:
    HOLDERS[holder](node)
    assert node.findings()["kubelet's certificate"].remedy == ""


def test_machine_that_may_join_has_no_problem(node: HealthyNode) -> None:
    """kubeconfig, program and certificate were wrong before the first join."""
    for name in (KUBECONFIG, CERTIFICATE):
        (node.root / name).unlink()
    findings = node.findings()
    assert [finding for finding in findings.values() if finding.remedy] == []
    assert "join writes it" in findings["kubeconfig"].detail
    (node.root / BOOTSTRAP).unlink()
    assert node.findings()["bootstrap credential"].remedy
