"""What the kubelet's own configuration may have wrong; checks of `doctor`.

With `rotateCertificates` or `--bootstrap-kubeconfig` the kubelet goes round this program.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from authenticator import kubeconfig
from authenticator.examination import Problem, Surroundings
from authenticator.execinfo import API_VERSIONS
from common import plain_yaml

KUBELET_CONFIG: Final = Path("/var/lib/kubelet/config.yaml")
KUBELET_ENVIRONMENT: Final = (
    Path("/var/lib/kubelet/kubeadm-flags.env"),
    Path("/etc/default/kubelet"),
    Path("/etc/sysconfig/kubelet"),
)
KUBELET_UNITS: Final = tuple(
    Path(folder, "systemd/system/kubelet.service.d") for folder in ("/usr/lib", "/etc")
)
"""Drop-ins of the first are hidden by those of the same name in the second."""

_KUBECONFIG_ARGS: Final = re.compile(r"KUBELET_KUBECONFIG_ARGS=([^\"\n]*)")


def exec_stanza(around: Surroundings) -> str:
    """Look at how the kubeconfig runs this program."""
    found = kubeconfig.load(around.place(around.kubeconfig))
    stanza = found.user.get("exec")
    if not isinstance(stanza, dict):
        raise Problem(f"{found.path} does not run this program")
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
        raise Problem("; ".join(problems))
    return f"{found.path} runs {stanza['command']}"


def _is_absolute(command: object) -> bool:
    return isinstance(command, str) and Path(command).is_absolute()


def program(around: Surroundings) -> str:
    """Look for the program that it runs."""
    stanza = kubeconfig.load(around.place(around.kubeconfig)).user.get("exec")
    command = around.place(Path(str(stanza.get("command")))) if isinstance(stanza, dict) else None
    if command is None or not os.access(command, os.X_OK):
        raise Problem(f"{command} cannot be run")
    return f"{command} can be run"


def rotation(around: Surroundings) -> str:
    """Look whether the kubelet rotates certificates itself."""
    path = around.place(KUBELET_CONFIG)
    if not path.exists():
        return f"{path} is not there"
    config = _yaml(path)
    if config.get("rotateCertificates") is True:
        raise Problem(f"{path} has rotateCertificates: true")
    return "rotateCertificates is not set"


def _yaml(path: Path) -> Mapping[str, Any]:
    try:
        document = plain_yaml.load(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Problem(f"{path} is not YAML") from error
    if not isinstance(document, dict):
        raise Problem(f"{path} is not a kubelet configuration")
    return document


def bootstrap_flag(around: Surroundings) -> str:
    """Find what the kubelet is started with: the last drop-in that says it counts."""
    drop_ins = {
        path.name: path
        for folder in KUBELET_UNITS
        for path in sorted(around.place(folder).glob("*.conf"))
    }
    arguments, where = "", "no drop-in"
    for name in sorted(drop_ins):
        said = _KUBECONFIG_ARGS.findall(drop_ins[name].read_text(encoding="utf-8"))
        if said:
            arguments, where = said[-1], str(drop_ins[name])
    for path in map(around.place, KUBELET_ENVIRONMENT):
        if path.exists() and "--bootstrap-kubeconfig" in path.read_text(encoding="utf-8"):
            arguments, where = "--bootstrap-kubeconfig", str(path)
    if "--bootstrap-kubeconfig" in arguments:
        raise Problem(f"{where} has --bootstrap-kubeconfig")
    return "the kubelet has no --bootstrap-kubeconfig"
