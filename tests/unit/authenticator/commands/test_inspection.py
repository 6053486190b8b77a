"""What people are shown: status, doctor with each finding, the endorsement key."""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
import yaml

from authenticator.commands import doctor, endorsement_key, status
from authenticator.commands.doctor_check import DoctorContext, Finding
from authenticator.config.exec_info import ExecInfo
from authenticator.config.invocation import Invocation
from authenticator.config.settings import resolve
from authenticator.errors import (
    ConfigurationInvalid,
    ExecInfoInvalid,
    RequestDenied,
    TpmFailed,
    TpmPermissionDenied,
    Unauthorized,
)
from authenticator.model import ApiCredential, Deadline, Server
from authenticator.state.cooldown import start
from authenticator.state.credential import Credential
from authenticator.state.directory import StateDirectory
from authenticator.state.run_record import RunRecorder
from authenticator.state.store import FileStore
from authenticator.tpm.device import DeviceEndorsementKey, Tpm
from common.errors import AttestationError
from tests.builders import credentials
from tests.fakes.clock import FakeClock
from tests.fakes.tpm import FakeTpm
from tests.unit.authenticator.state.test_store import PENDING

NOW = 1_800_000_000


@dataclass
class Healthy:
    """A machine on which nothing is wrong, and where a test breaks one thing."""

    root: Path
    clock: FakeClock
    tpm: FakeTpm
    skew: float = 0.0
    allowed: bool = True
    refusal: AttestationError | None = None
    call: Invocation | AttestationError | None = None

    def __post_init__(self) -> None:
        for name in ("etc/kubernetes", "var/lib/kubelet", "usr/lib", "usr/bin"):
            (self.root / name).mkdir(parents=True)
        program = self.root / "usr/bin/kubelet-authenticator-tpm"
        program.touch(mode=0o755)
        self.write("var/lib/kubelet/config.yaml", {"rotateCertificates": False})
        self.write("etc/kubernetes/bootstrap.conf", self.kubeconfig({"token": "a.b"}))
        self.write("etc/kubernetes/kubelet.conf", self.kubeconfig({"exec": self.stanza()}))
        settings = {
            "nodeName": "worker-1",
            "providerID": "test:///1",
            "stateDir": str(self.root / "state"),
            "bootstrapKubeconfig": str(self.root / "etc/kubernetes/bootstrap.conf"),
        }
        server = Server(url="https://a", ca="", tls_server_name=None, proxy=None)
        info = ExecInfo(raw=credentials.EXEC_INFO, api_version="", server=server, settings={})
        self.call = Invocation(exec_info=info, settings=resolve(settings, {}, "x"), arguments=())
        with StateDirectory(self.root / "state") as folder:
            FileStore(folder, self.clock).save_credential(self.credential())

    def credential(self) -> Credential:
        """Return a certificate of yesterday."""
        return credentials.make(int(self.clock.now()) - credentials.DAY)

    def stanza(self, **change: object) -> dict[str, object]:
        """Return the exec stanza, changed."""
        return {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "/usr/bin/kubelet-authenticator-tpm",
            "interactiveMode": "Never",
            "provideClusterInfo": True,
            **change,
        }

    def kubeconfig(self, user: dict[str, Any]) -> dict[str, Any]:
        """Return a kubeconfig with this user."""
        return {
            "clusters": [{"name": "c", "cluster": {"server": "https://a"}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }

    def write(self, name: str, content: object) -> None:
        """Write a file of the machine."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else yaml.safe_dump(content)
        path.write_text(text, encoding="utf-8")

    def server_date(self) -> str:
        """Tell the API server's time."""
        return formatdate(self.clock.now() - self.skew, usegmt=True)

    def can_create_csrs(self) -> bool:
        """Tell what the API server allows."""
        if self.refusal is not None:
            raise self.refusal
        return self.allowed

    def findings(self) -> dict[str, Finding]:
        """Make every check."""

        @contextlib.contextmanager
        def open_tpm(call: Invocation, deadline: Deadline) -> Iterator[Tpm]:
            assert call is self.call
            deadline.clamp(1)
            yield self.tpm

        def probe(call: Invocation, requester: ApiCredential, deadline: Deadline) -> "Healthy":
            assert call is self.call
            assert repr(requester)
            deadline.clamp(1)
            return self

        assert self.call is not None
        around = DoctorContext(
            kubeconfig=Path("/etc/kubernetes/kubelet.conf"),
            root=self.root,
            clock=self.clock,
            call=self.call,
            open_tpm=open_tpm,
            probe=probe,
        )
        return {finding.check: finding for finding in doctor.run_checks(around)}


@pytest.fixture
def machine(tmp_path: Path) -> Healthy:
    """Return a machine on which nothing is wrong."""
    return Healthy(tmp_path, FakeClock(), FakeTpm())


def test_healthy_machine_has_nothing_wrong(machine: Healthy) -> None:
    findings = machine.findings()
    assert [f for f in findings.values() if f.remedy] == []
    assert doctor.format_text(list(findings.values())).count("ok ") == len(findings)


def stanza(**change: object) -> Callable[[Healthy], None]:
    """Return a break of the exec stanza."""
    return lambda machine: machine.write(
        "etc/kubernetes/kubelet.conf", machine.kubeconfig({"exec": machine.stanza(**change)})
    )


def drop_in(folder: str, name: str, arguments: str) -> Callable[[Healthy], None]:
    """Return a drop-in of the kubelet's unit."""
    line = f'[Service]\nEnvironment="KUBELET_KUBECONFIG_ARGS={arguments}"\n'
    return lambda machine: machine.write(f"{folder}/systemd/system/kubelet.service.d/{name}", line)


def expire(machine: Healthy) -> None:
    """Let the certificate run out."""
    machine.clock.pass_time(7 * credentials.DAY)


def lose_certificate(machine: Healthy) -> None:
    """Remove the credential."""
    (machine.root / "state/credential.pem").unlink()


def lose_every_credential(machine: Healthy) -> None:
    """Remove both credentials."""
    lose_certificate(machine)
    (machine.root / "etc/kubernetes/bootstrap.conf").unlink()


KUBEADM_FLAGS = "--bootstrap-kubeconfig=/b --kubeconfig=/k"
BREAKS: dict[str, tuple[str, Callable[[Healthy], object], str]] = {
    "interactive mode": ("kubeconfig", stanza(interactiveMode="IfAvailable"), "interactiveMode"),
    "no cluster info": ("kubeconfig", stanza(provideClusterInfo=False), "provideClusterInfo"),
    "old version": ("kubeconfig", stanza(apiVersion="v1alpha1"), "apiVersion"),
    "relative command": ("kubeconfig", stanza(command="kubelet-authenticator-tpm"), "absolute"),
    "no command": ("program", stanza(command=None), "cannot be run"),
    "another credential": (
        "kubeconfig",
        lambda m: m.write(
            "etc/kubernetes/kubelet.conf", m.kubeconfig({"exec": m.stanza(), "token": "x"})
        ),
        "beside exec",
    ),
    "no stanza": (
        "kubeconfig",
        lambda m: m.write("etc/kubernetes/kubelet.conf", m.kubeconfig({"token": "x"})),
        "does not run this program",
    ),
    "no kubeconfig": (
        "kubeconfig",
        lambda m: (m.root / "etc/kubernetes/kubelet.conf").unlink(),
        "No such file",
    ),
    "no program": (
        "program",
        lambda m: (m.root / "usr/bin/kubelet-authenticator-tpm").unlink(),
        "cannot be run",
    ),
    "rotation": (
        "rotateCertificates",
        lambda m: m.write("var/lib/kubelet/config.yaml", {"rotateCertificates": True}),
        "rotateCertificates: true",
    ),
    "rotation by a flag in capitals": (
        "rotateCertificates",
        drop_in("etc", "30-own.conf", "--kubeconfig=/k --rotate-certificates=TRUE"),
        "30-own.conf has --rotate-certificates",
    ),
    "list for a kubelet configuration": (
        "rotateCertificates",
        lambda m: m.write("var/lib/kubelet/config.yaml", "[]"),
        "not a kubelet configuration",
    ),
    "broken kubelet configuration": (
        "rotateCertificates",
        lambda m: m.write("var/lib/kubelet/config.yaml", "{"),
        "not YAML",
    ),
    "kubeadm's drop-in": (
        "bootstrap flags",
        drop_in("usr/lib", "10-kubeadm.conf", KUBEADM_FLAGS),
        "10-kubeadm.conf has --bootstrap-kubeconfig",
    ),
    "rotation by a flag": (
        "rotateCertificates",
        drop_in("etc", "30-own.conf", "--kubeconfig=/k --rotate-certificates"),
        "30-own.conf has --rotate-certificates",
    ),
    "flag in the environment": (
        "bootstrap flags",
        lambda m: m.write("etc/default/kubelet", "KUBELET_EXTRA_ARGS=--bootstrap-kubeconfig=/b\n"),
        "etc/default/kubelet has --bootstrap-kubeconfig",
    ),
    "no call": (
        "settings",
        lambda m: setattr(m, "call", ExecInfoInvalid("no CA")),
        "ExecInfoInvalid: no CA",
    ),
    "open folder": (
        "state folder",
        lambda m: os.chown(m.root / "state", 65534, 65534),
        "StateDirectoryUnsafe",
    ),
    "no TPM permission": (
        "TPM",
        lambda m: m.tpm.errors.append(TpmPermissionDenied("may not")),
        "TpmPermissionDenied",
    ),
    "no bootstrap credential and no certificate": (
        "bootstrap credential",
        lose_every_credential,
        "there is no certificate",
    ),
    "clock": ("clock", lambda m: setattr(m, "skew", 3600.0), "+3600 s off"),
    "no permission": ("API server", lambda m: setattr(m, "allowed", False), "may not create"),
    "refused credential": (
        "API server",
        lambda m: setattr(m, "refusal", Unauthorized("401")),
        "Unauthorized",
    ),
    "expired certificate": ("certificate", expire, "it ended at"),
    "no certificate": ("certificate", lose_certificate, "there is no certificate"),
}


@pytest.mark.parametrize("broken", BREAKS)
def test_what_is_wrong_is_found_with_its_remedy(machine: Healthy, broken: str) -> None:
    check, break_it, told = BREAKS[broken]
    break_it(machine)
    finding = machine.findings()[check]
    assert finding.remedy
    assert told in finding.detail
    assert f"wrong  {check}: " in doctor.format_text([finding])


def test_later_drop_in_wins(machine: Healthy) -> None:
    drop_in("usr/lib", "10-kubeadm.conf", KUBEADM_FLAGS)(machine)
    drop_in("etc", "20-attestation.conf", "--kubeconfig=/k")(machine)
    assert machine.findings()["bootstrap flags"].remedy == ""


def test_flag_beats_what_kubeadm_writes(machine: Healthy) -> None:
    """It writes rotateCertificates: true whatever it is told."""
    machine.write("var/lib/kubelet/config.yaml", {"rotateCertificates": True})
    drop_in("etc", "20-own.conf", "--kubeconfig=/k --rotate-certificates=false")(machine)
    assert machine.findings()["rotateCertificates"].remedy == ""
    machine.write("etc/default/kubelet", 'KUBELET_EXTRA_ARGS="--rotate-certificates=true --v=2"\n')
    assert "etc/default/kubelet" in machine.findings()["rotateCertificates"].detail
    assert machine.findings()["rotateCertificates"].remedy


def test_comment_in_a_drop_in_is_none(machine: Healthy) -> None:
    line = '# Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/b"\n'
    machine.write("etc/systemd/system/kubelet.service.d/20-own.conf", line)
    assert machine.findings()["bootstrap flags"].remedy == ""


def test_without_a_call_the_rest_is_not_blamed(machine: Healthy) -> None:
    machine.call = ExecInfoInvalid("no CA")
    assert machine.findings()["TPM"].detail == "not looked at"
    assert machine.findings()["rotateCertificates"].remedy == ""


def test_kubelet_without_a_configuration_rotates_nothing(machine: Healthy) -> None:
    (machine.root / "var/lib/kubelet/config.yaml").unlink(missing_ok=True)
    finding = machine.findings()["rotateCertificates"]
    assert finding.remedy == ""
    assert "is not there" in finding.detail


def test_record_of_a_run_says_what_and_why() -> None:
    clock = FakeClock()
    run = RunRecorder(clock, "needed")
    clock.pass_time(0.5)
    with contextlib.suppress(ZeroDivisionError), run.phase("offer"):
        clock.pass_time(1.23456)
        raise ZeroDivisionError
    told = {
        "time": "2027-01-15T08:00:00Z",
        "purpose": "needed",
        "result": "failed",
        "seconds": 1.735,
        "phases": [{"name": "offer", "seconds": 1.235}],
    }
    assert run.record("failed") == told
    why = {"reason": "RequestDenied", "message": "no"}
    assert run.record("failed", RequestDenied("no")) == told | why
    denied = RequestDenied("no", detail="MachineNotFound")
    assert run.record("failed", denied) == told | why | {"signerReason": "MachineNotFound"}
    bug = run.record("failed", ZeroDivisionError("a secret"))
    assert bug["reason"] == "ZeroDivisionError"
    assert "secret" not in str(bug)


def test_missing_bootstrap_credential_is_fine_with_a_certificate(machine: Healthy) -> None:
    (machine.root / "etc/kubernetes/bootstrap.conf").unlink()
    assert "not needed" in machine.findings()["bootstrap credential"].detail


def test_doctor_leaves_nothing_behind(machine: Healthy) -> None:
    before = sorted(path.name for path in (machine.root / "state").iterdir())
    machine.findings()
    after = sorted(path.name for path in (machine.root / "state").iterdir())
    assert set(after) - set(before) <= {"exchange.lock"}


def test_status_shows_everything_there_is(tmp_path: Path) -> None:
    clock = FakeClock()
    with StateDirectory(tmp_path / "state") as folder:
        store = FileStore(folder, clock)
        assert status.format_text(status.collect(store, None, clock)) == "certificate  none\n"
        store.save_credential(credentials.make(int(clock.now()) - credentials.DAY))
        store.save_pending(PENDING)
        error = RequestDenied("denied: EndorsementKeyMismatch", detail="EndorsementKeyMismatch")
        start(error, store, clock, "digest", 0.0)
        run = RunRecorder(clock, "needed")
        with run.phase("offer"):
            clock.pass_time(0.25)
        store.append_run_record(run.record("failed", error))
        store.append_run_record(RunRecorder(clock, "needed").record("done"))
        serving = credentials.make(int(clock.now()) - 2 * credentials.DAY)
        shown = status.format_text(status.collect(store, serving, clock))
    for words in (
        "node         worker-1",
        "certificate  fresh, until",
        "serving      fresh, until",
        "exchange     at its offer, begun",
        "2 s until the next attempt, after RequestDenied: denied: EndorsementKeyMismatch",
        "last run",
        "last failure",
        "0.250 s  offer",
    ):
        assert words in shown
    assert "key" not in shown.lower().replace("endorsementkey", "")


def test_exchange_of_another_boot_is_none(tmp_path: Path) -> None:
    clock = FakeClock()
    with StateDirectory(tmp_path / "state") as folder:
        store = FileStore(folder, clock)
        store.save_pending(PENDING)
        clock.reboot()
        assert status.collect(store, None, clock)["exchange"] is None


def test_endorsement_key_is_told_in_the_forms_of_the_record() -> None:
    document = endorsement_key.collect(FakeTpm(certificates=[b"x"]).endorsement_key())
    assert document["publicKey"].startswith("-----BEGIN PUBLIC KEY-----\n")
    assert document["certificates"] == 1
    assert f"sha256:{document['sha256']}" in endorsement_key.format_text(document)


def test_manifest_registers_this_machine_for_its_cluster() -> None:
    document = endorsement_key.collect(FakeTpm().endorsement_key())
    settings = resolve({"nodeName": "worker-1", "providerID": "test:///1"}, {}, "x")
    made = endorsement_key.manifest(document, settings, "ns/c")
    assert yaml.safe_load(endorsement_key.to_yaml(made)) == {
        "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
        "kind": "EndorsementKey",
        "metadata": {"name": document["sha256"]},
        "spec": {
            "publicKey": document["publicKey"],
            "registeredFor": [
                {
                    "clusterNamespace": "ns",
                    "clusterName": "c",
                    "providerID": "test:///1",
                    "nodeName": "worker-1",
                }
            ],
        },
    }
    assert "registeredFor" not in endorsement_key.manifest(document, settings, None)["spec"]


@pytest.mark.parametrize("cluster", ["c", "/c", "ns/"])
def test_cluster_of_a_manifest_has_a_namespace(cluster: str) -> None:
    document = endorsement_key.collect(FakeTpm().endorsement_key())
    settings = resolve({"nodeName": "worker-1", "providerID": "test:///1"}, {}, "x")
    with pytest.raises(ConfigurationInvalid, match="NAMESPACE/NAME"):
        endorsement_key.manifest(document, settings, cluster)


def test_endorsement_key_that_is_none_is_a_failed_tpm() -> None:
    with pytest.raises(TpmFailed):
        endorsement_key.collect(DeviceEndorsementKey(public=b"\x00", certificates=()))
