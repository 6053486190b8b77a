"""Checks of `doctor`: the kubeconfig, the flags and the configuration of the kubelet.

With `rotateCertificates` or `--bootstrap-kubeconfig` the kubelet bypasses this program.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from authenticator.checks.doctor_check import CheckFailed, CheckSkipped, DoctorContext
from authenticator.config import kubeconfig
from authenticator.config.exec_info import API_VERSIONS
from authenticator.errors import KubeconfigUnusable
from common.formats import strict_yaml

KUBELET_CONFIG: Final = Path("/var/lib/kubelet/config.yaml")
KUBELET_ENVIRONMENT: Final = (
    Path("/var/lib/kubelet/kubeadm-flags.env"),
    Path("/etc/default/kubelet"),
    Path("/etc/sysconfig/kubelet"),
    Path("/usr/lib/kubelet-authenticator-tpm/kubelet.env"),  # of our drop-in, so the last
)
KUBELET_UNITS: Final = tuple(
    Path(directory, "systemd/system/kubelet.service.d") for directory in ("/usr/lib", "/etc")
)
"""A drop-in of the second directory replaces one of the same name in the first."""

_KUBECONFIG_ARGS: Final = re.compile(r"^[^#\n]*KUBELET_KUBECONFIG_ARGS=\"?([^\"\n]*)", re.MULTILINE)
_COMMENT: Final = re.compile(r"^\s*[#;].*$", re.MULTILINE)
_ROTATE: Final = re.compile(r"--rotate-certificates(?:=(\w+))?(?=[\s\"']|$)", re.MULTILINE)
_TRUE: Final = frozenset({"", "1", "t", "true"})
"""Values that Go's flag package parses as true; a flag without a value is true as well."""


def check_exec_stanza(context: DoctorContext) -> str:
    """Check how the kubeconfig runs this program."""
    if context.is_before_join():
        return f"{context.host_path(context.kubeconfig)} does not exist yet: join writes it"
    source = kubeconfig.load(context.host_path(context.kubeconfig))
    stanza = source.user.get("exec")
    if not isinstance(stanza, dict):
        raise CheckFailed(f"{source.path} does not run this program")
    problems = [
        problem
        for problem, wrong in (
            ("apiVersion is not v1", stanza.get("apiVersion") not in API_VERSIONS),
            ("interactiveMode is not Never", stanza.get("interactiveMode") != "Never"),
            ("provideClusterInfo is not true", stanza.get("provideClusterInfo") is not True),
            ("command is not an absolute path", not _is_absolute(stanza.get("command"))),
            ("its user has another credential besides exec", len(source.user) > 1),
        )
        if wrong
    ]
    if problems:
        raise CheckFailed("; ".join(problems))
    return f"{source.path} runs {stanza['command']}"


def _is_absolute(command: object) -> bool:
    return isinstance(command, str) and Path(command).is_absolute()


def check_program(context: DoctorContext) -> str:
    """Check that the program of the kubeconfig can be run."""
    if context.is_before_join():
        return "join writes its path into the kubeconfig"
    try:
        stanza = kubeconfig.load(context.host_path(context.kubeconfig)).user.get("exec")
    except KubeconfigUnusable:
        stanza = None
    if not isinstance(stanza, dict):
        raise CheckSkipped("not checked: the kubeconfig does not run this program")
    command = context.host_path(Path(str(stanza.get("command"))))
    if not os.access(command, os.X_OK):
        raise CheckFailed(f"{command} cannot be run")
    return f"{command} can be run"


def check_rotation(context: DoctorContext) -> str:
    """Check that the kubelet does not rotate certificates itself; its last flag overrides its file.

    kubeadm always writes rotateCertificates: true, so only the flag can turn it off.
    """
    values = [(where, value) for where, text in _flags(context) for value in _ROTATE.findall(text)]
    if values:
        where, value = values[-1]
        if value.lower() in _TRUE:
            raise CheckFailed(f"{where} has --rotate-certificates")
        return f"{where} has --rotate-certificates=false"
    path = context.host_path(KUBELET_CONFIG)
    if not path.exists():
        return f"{path} does not exist"
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


def check_bootstrap_flag(context: DoctorContext) -> str:
    """Check that no flag makes the kubelet overwrite its kubeconfig."""
    for where, text in _flags(context):
        if "--bootstrap-kubeconfig" in text:
            raise CheckFailed(f"{where} has --bootstrap-kubeconfig")
    return "the kubelet has no --bootstrap-kubeconfig"


def _flags(context: DoctorContext) -> list[tuple[str, str]]:
    """Return the sources of flags and their text, in the order in which the kubelet gets them.

    The last setting of KUBELET_KUBECONFIG_ARGS counts; environment files come after drop-ins.
    """
    drop_ins = {
        path.name: path
        for directory in KUBELET_UNITS
        for path in sorted(context.host_path(directory).glob("*.conf"))
    }
    effective: list[tuple[str, str]] = []
    for name in sorted(drop_ins):
        values = _KUBECONFIG_ARGS.findall(_read(drop_ins[name]))
        if values:
            effective = [(str(drop_ins[name]), values[-1])]
    others: list[tuple[str, str]] = []
    for path in filter(Path.exists, map(context.host_path, KUBELET_ENVIRONMENT)):
        text = _COMMENT.sub("", _read(path))
        if values := _KUBECONFIG_ARGS.findall(text):
            effective = [(str(path), values[-1])]
        others.append((str(path), _KUBECONFIG_ARGS.sub("", text)))
    return effective + others


def _read(path: Path) -> str:
    """Return the text of a file; systemd accepts bytes that are not UTF-8."""
    return path.read_text(encoding="utf-8", errors="replace")
