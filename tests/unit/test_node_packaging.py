"""The files of node packages are valid, and match the program and the guide."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from authenticator.checks import doctor_kubelet
from authenticator.commands.run import RESOLVE_SECONDS, WATCHDOG_SECONDS
from authenticator.config import command_line, exec_info, invocation, kubeconfig
from authenticator.config.setting_table import (
    DEFAULT_BOOTSTRAP_KUBECONFIG,
    DEFAULT_STATE_DIR,
    MAX_TIMEOUT_SECONDS,
    SETTINGS,
)
from authenticator.enroll import serving
from authenticator.state.store import CREDENTIAL
from authenticator.tpm.device import DEFAULT_TCTI
from tests.builders.healthy_node import KUBEADM_FLAGS, HealthyNode, drop_in
from tests.fakes.clock import FakeClock
from tests.fakes.tpm import FakeTpm

NODE = Path(__file__).parents[2] / "packaging/node"
SYSTEMD = NODE / "systemd"
SERVICES = sorted(SYSTEMD.glob("*.service"))
UNITS = [*SERVICES, *sorted(SYSTEMD.glob("*.timer"))]
DROP_INS = sorted(SYSTEMD.glob("*.conf"))
PROGRAM = "/usr/bin/kubelet-authenticator-tpm"
RESTART = "/usr/bin/systemctl try-restart kubelet.service"
HOST_UNITS = Path("/usr/lib/systemd/system")
GUIDE = (NODE.parents[1] / "docs/node.md").read_text(encoding="utf-8")
FLAGS = NODE / "kubelet.env"
TIME_LIMIT = "-/usr/bin/timeout --kill-after=5s 950s "
"""Prefix of each command before the kubelet starts."""
EXPOSURE_LIMIT = 30
"""In tenths: the limit of "OK" in systemd-analyze, for root with a device and the network."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the root directory of a machine: our units, a kubelet, and targets of systemd."""
    units = tmp_path / "usr/lib/systemd/system"
    (units / "kubelet.service.d").mkdir(parents=True)
    for path in [*HOST_UNITS.glob("*.target"), *HOST_UNITS.glob("*.slice"), *UNITS]:
        shutil.copy(path, units)
    for path in DROP_INS:
        shutil.copy(path, units / "kubelet.service.d")
    (units / "kubelet.service").write_text("[Service]\nExecStart=/usr/bin/kubelet\n")
    (tmp_path / "usr/bin").mkdir()
    for program in ("kubelet", "systemctl", "timeout", Path(PROGRAM).name):
        (tmp_path / "usr/bin" / program).touch(mode=0o755)
    return tmp_path


def analyze(*words: str | Path) -> str:
    """Run systemd-analyze, and return its output and its exit code."""
    done = subprocess.run(
        ["systemd-analyze", *words],
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return f"{done.stdout}{done.returncode}"


def test_systemd_finds_no_problem(root: Path) -> None:
    names = ["kubelet.service", *(path.name for path in UNITS)]
    assert analyze("verify", "--man=no", f"--root={root}", *names) == "0"


def test_systemd_finds_a_wrong_unit(root: Path) -> None:
    unit = root / "usr/lib/systemd/system" / SERVICES[0].name
    unit.write_text(unit.read_text().replace("ProtectClock", "ProtectClok"))
    assert "ProtectClok" in analyze("verify", "--man=no", f"--root={root}", unit.name)


@pytest.mark.parametrize("service", SERVICES, ids=lambda path: path.name)
def test_services_are_sandboxed(root: Path, service: Path) -> None:
    report = analyze(
        "security", "--offline=yes", f"--root={root}", f"--threshold={EXPOSURE_LIMIT}", service.name
    )
    assert report.endswith("0"), report


@pytest.mark.parametrize("timer", sorted(SYSTEMD.glob("*.timer")), ids=lambda path: path.name)
def test_timers_start_their_services(timer: Path) -> None:
    assert timer.with_suffix(".service") in SERVICES


def values(path: Path, key: str) -> list[str]:
    """Return the values of a key in a unit."""
    return re.findall(rf"^{key}=(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("unit", [*SERVICES, *DROP_INS], ids=lambda path: path.name)
def test_commands_of_units_are_the_installed_programs(unit: Path) -> None:
    keys = ("ExecCondition", "ExecStart", "ExecStartPre")
    commands = [command for key in keys for command in values(unit, key)]
    assert commands
    for command in commands:
        if command == RESTART:
            continue
        words = shlex.split(command.removeprefix(TIME_LIMIT))
        program, *words = [word for word in words if not word.startswith("$")]
        assert program == PROGRAM
        parsed = command_line.parse_arguments(words)
        assert parsed.command == words[0]
        assert parsed.problems == ()


def test_paths_are_those_of_the_program() -> None:
    for service in SERVICES:
        assert values(service, "StateDirectory") == [Path(DEFAULT_STATE_DIR).name]
        assert Path(DEFAULT_STATE_DIR).parent == Path("/var/lib")
        assert values(service, "DeviceAllow") == [f"{DEFAULT_TCTI.removeprefix('device:')} rw"]
        assert values(service, "ConditionPathExists") == [command_line.DEFAULT_KUBECONFIG]
    served = serving.serving_directory(Path(DEFAULT_STATE_DIR)) / CREDENTIAL
    assert f"tlsPrivateKeyFile both {served}. " in " ".join(
        (SYSTEMD / "zz-30-kubelet-authenticator-tpm-serving.conf")
        .read_text()
        .replace("\n#", "")
        .split()
    )


def test_timeout_of_systemd_is_longer_than_that_of_the_program() -> None:
    for service in SERVICES:
        [seconds] = values(service, "TimeoutStartSec")
        assert int(seconds) > MAX_TIMEOUT_SECONDS + WATCHDOG_SECONDS
    [limit] = values(SYSTEMD / "zz-20-kubelet-authenticator-tpm.conf", "TimeoutStartSec")
    kill_after, duration = map(int, re.findall(r"(\d+)s\b", TIME_LIMIT))
    assert duration > RESOLVE_SECONDS + MAX_TIMEOUT_SECONDS + 2 * WATCHDOG_SECONDS
    assert duration + kill_after < int(limit)


def test_drop_in_undoes_what_kubeadm_does(tmp_path: Path) -> None:
    machine = HealthyNode(tmp_path, FakeClock(), FakeTpm())
    machine.write("var/lib/kubelet/config.yaml", {"rotateCertificates": True})
    drop_in("usr/lib", "10-kubeadm.conf", KUBEADM_FLAGS)(machine)
    checks = ("rotateCertificates", "bootstrap flags")
    assert all(machine.findings()[check].remedy for check in checks)
    directory = "usr/lib/systemd/system/kubelet.service.d"
    for path in DROP_INS:
        machine.write(f"{directory}/{path.name}", path.read_text(encoding="utf-8"))
    machine.write("usr/lib/kubelet-authenticator-tpm/kubelet.env", FLAGS.read_text())
    assert not any(machine.findings()[check].remedy for check in checks)


def test_kubeconfig_is_one_that_client_go_runs_the_program_from(tmp_path: Path) -> None:
    text = (NODE / "kubelet.conf").read_text(encoding="utf-8")
    blanks = re.findall(r"<[^>]*>", text)
    authority = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCi0tLS0tRU5EIENFUlRJRklDQVRFLS0tLS0K"
    for blank, value in zip(blanks, ("api.example", authority, "aws"), strict=True):
        text = text.replace(blank, value)
    machine = HealthyNode(tmp_path, FakeClock(), FakeTpm())
    machine.write("etc/kubernetes/kubelet.conf", text)
    assert yaml.safe_load(text)["kind"] == "Config"
    for check in ("kubeconfig", "program"):
        assert machine.findings()[check].remedy == ""
    call = invocation.call_of_kubeconfig(kubeconfig.load(tmp_path / "etc/kubernetes/kubelet.conf"))
    assert exec_info.parse_exec_info(call.exec_info).settings == {"provider": "aws"}


def test_guide_has_every_setting_and_no_other() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(--[^`]+)` \| (.+) \|$", GUIDE, re.MULTILINE)
    expected = [(s.key, f"{s.flag} {s.metavar}", s.help) for s in SETTINGS]
    assert rows == expected


def test_guide_has_every_file_that_is_shipped() -> None:
    units = " ".join(re.findall(r"^\| `\S+[./][^|]+\|", GUIDE, re.MULTILINE)).replace("…", "")
    for path in NODE.rglob("*.*"):
        if path.parent.name == "insecure" or path.name == "kubelet.conf":
            continue
        if path.suffix in {".conf", ".timer", ".1", ".env"}:
            assert path.name.removeprefix("kubelet-authenticator-tpm") in units, path


def test_packages_do_not_have_the_insecure_join() -> None:
    """tree.sh names each directory that the deb and the rpm have files from."""
    tree = (NODE / "package/tree.sh").read_text(encoding="utf-8")
    assert re.findall(r"\$node/(\w+|kubelet\.conf\.d)/", tree)
    assert "insecure" not in tree
    assert "$node/*" not in tree


def test_guide_has_every_library_of_the_packages() -> None:
    overrides = yaml.safe_load((NODE / "package/nfpm.yaml").read_text(encoding="utf-8"))[
        "overrides"
    ]
    for line in [line for kind in overrides.values() for line in kind["depends"]]:
        for name in re.sub(r" ?\([^)]*\)", "", line).split(" | "):
            assert f"`{name.partition(' ')[0]}`" in GUIDE, line


COMPLETE = """
source {completion}
COMP_WORDS=(kubelet-authenticator-tpm {words}) COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_kubelet_authenticator_tpm kubelet-authenticator-tpm "${{COMP_WORDS[-1]}}"
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def completions(words: str) -> set[str]:
    """Return what bash offers for the last word of a command line."""
    script = COMPLETE.format(completion=NODE / "completion/kubelet-authenticator-tpm", words=words)
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_completion_offers_the_commands() -> None:
    assert completions("''") >= set(command_line.COMMANDS)
    assert completions("rene") == {"renew"}


@pytest.mark.parametrize("command", command_line.COMMANDS)
def test_completion_offers_every_flag_of_a_command_and_no_other(command: str) -> None:
    help_text = subprocess.run(
        [Path(sys.prefix, "bin", Path(PROGRAM).name), command, "--help"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    flags = re.findall(r"^  (?:-\w, )?(--[\w-]+)", help_text, re.MULTILINE)
    assert completions(f"{command} --") == set(flags)


def test_completion_offers_values() -> None:
    assert completions("status --output j") == {"json"}
    assert completions("--endorsement-key-type ''") == {"auto", "ecc", "rsa"}


def test_commands_of_the_guide_are_valid() -> None:
    for command in re.findall(r"^kubelet-authenticator-tpm ([^$#&\n]*)", GUIDE, re.MULTILINE):
        assert command_line.parse_arguments(shlex.split(command)).problems == (), command


def test_kubeconfigs_have_the_paths_of_kubeadm() -> None:
    directory = Path("/etc/kubernetes")
    assert Path(command_line.DEFAULT_KUBECONFIG) == directory / "kubelet.conf"
    assert Path(DEFAULT_BOOTSTRAP_KUBECONFIG) == directory / "bootstrap-kubelet.conf"
    assert Path("/usr/lib/systemd/system/kubelet.service.d") in doctor_kubelet.KUBELET_UNITS
