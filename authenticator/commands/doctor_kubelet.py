"""What the kubelet's own configuration may have wrong; checks of `doctor`.

With `rotateCertificates` or `--bootstrap-kubeconfig` the kubelet goes round this program.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from authenticator.commands.doctor_check import CheckFailed, DoctorContext
from authenticator.config import kubeconfig
from authenticator.config.exec_info import API_VERSIONS
from common import strict_yaml

KUBELET_CONFIG: Final = Path("/var/lib/kubelet/config.yaml")
KUBELET_ENVIRONMENT: Final = (
    Path("/var/lib/kubelet/kubeadm-flags.env"),
    Path("/etc/default/kubelet"),
    Path("/etc/sysconfig/kubelet"),
    Path("/usr/lib/kubelet-authenticator-tpm/kubelet.env"),  # of our drop-in, so the last
)
KUBELET_UNITS: Final = tuple(
    Path(folder, "systemd/system/kubelet.service.d") for folder in ("/usr/lib", "/etc")
)
"""Drop-ins of the first are hidden by those of the same name in the second."""

_KUBECONFIG_ARGS: Final = re.compile(r"^[^#\n]*KUBELET_KUBECONFIG_ARGS=\"?([^\"\n]*)", re.MULTILINE)
_COMMENT: Final = re.compile(r"^\s*[#;].*$", re.MULTILINE)
_ROTATE: Final = re.compile(r"--rotate-certificates(?:=(\w+))?(?=[\s\"']|$)", re.MULTILINE)
_TRUE: Final = frozenset({"", "1", "t", "true"})
"""What Go's flags take for true; without a value they are."""


def check_exec_stanza(around: DoctorContext) -> str:
    """Look at how the kubeconfig runs this program."""
    found = kubeconfig.load(around.host_path(around.kubeconfig))
    stanza = found.user.get("exec")
    if not isinstance(stanza, dict):
        raise CheckFailed(f"{found.path} does not run this program")
    problems = [
        told
        for told, wrong in (
            ("apiVersion is not v1", stanza.get("apiVersion") not in API_VERSIONS),
            ("interactiveMode is not Never", stanza.get("interactiveMode") != "Never"),
            ("provideClusterInfo is not true", stanza.get("provideClusterInfo") is not True),
            ("command is no absolute path", not _is_absolute(stanza.get("command"))),
            ("its user has a credential beside exec", len(found.user) > 1),
        )
        if wrong
    ]
    if problems:
        raise CheckFailed("; ".join(problems))
    return f"{found.path} runs {stanza['command']}"


def _is_absolute(command: object) -> bool:
    return isinstance(command, str) and Path(command).is_absolute()


def check_program(around: DoctorContext) -> str:
    """Look for the program that it runs."""
    stanza = kubeconfig.load(around.host_path(around.kubeconfig)).user.get("exec")
    command = (
        around.host_path(Path(str(stanza.get("command")))) if isinstance(stanza, dict) else None
    )
    if command is None or not os.access(command, os.X_OK):
        raise CheckFailed(f"{command} cannot be run")
    return f"{command} can be run"


def check_rotation(around: DoctorContext) -> str:
    """Look whether the kubelet rotates certificates itself: its last flag beats its file.

    kubeadm writes rotateCertificates: true whatever it is told, so the flag is how it is set.
    """
    said = [(where, word) for where, text in _flags(around) for word in _ROTATE.findall(text)]
    if said:
        where, word = said[-1]
        if word.lower() in _TRUE:
            raise CheckFailed(f"{where} has --rotate-certificates")
        return f"{where} has --rotate-certificates=false"
    path = around.host_path(KUBELET_CONFIG)
    if not path.exists():
        return f"{path} is not there"
    if _yaml(path).get("rotateCertificates") is True:
        raise CheckFailed(f"{path} has rotateCertificates: true")
    return "rotateCertificates is not set"


def _yaml(path: Path) -> Mapping[str, Any]:
    try:
        document = strict_yaml.load(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckFailed(f"{path} is not YAML") from error
    if not isinstance(document, dict):
        raise CheckFailed(f"{path} is not a kubelet configuration")
    return document


def check_bootstrap_flag(around: DoctorContext) -> str:
    """Look for the flag that makes the kubelet overwrite its kubeconfig."""
    for where, text in _flags(around):
        if "--bootstrap-kubeconfig" in text:
            raise CheckFailed(f"{where} has --bootstrap-kubeconfig")
    return "the kubelet has no --bootstrap-kubeconfig"


def _flags(around: DoctorContext) -> list[tuple[str, str]]:
    """Return what the kubelet is started with, and where that is said, in the kubelet's order.

    The last setting of KUBELET_KUBECONFIG_ARGS counts; environment files come after drop-ins.
    """
    drop_ins = {
        path.name: path
        for folder in KUBELET_UNITS
        for path in sorted(around.host_path(folder).glob("*.conf"))
    }
    counts: list[tuple[str, str]] = []
    for name in sorted(drop_ins):
        said = _KUBECONFIG_ARGS.findall(drop_ins[name].read_text(encoding="utf-8"))
        if said:
            counts = [(str(drop_ins[name]), said[-1])]
    others: list[tuple[str, str]] = []
    for path in filter(Path.exists, map(around.host_path, KUBELET_ENVIRONMENT)):
        text = _COMMENT.sub("", path.read_text(encoding="utf-8"))
        if said := _KUBECONFIG_ARGS.findall(text):
            counts = [(str(path), said[-1])]
        others.append((str(path), _KUBECONFIG_ARGS.sub("", text)))
    return counts + others
