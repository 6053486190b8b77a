"""What the signer is told at its start: one value, from flags and the files that they name.

Everything that is wrong is told at once, and nothing that is wrong is repaired by a default.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from common.errors import KubeconfigRefused
from signer.kube.kubeconfig import Connection, in_cluster, parse_kubeconfig
from signer.kube.tls import client_context
from signer.policy import Policies, Policy, PolicyFileInvalid, load_policies
from signer.verify.endorsement_certificate import NO_ANCHORS, TrustAnchors, load_trust_anchors

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ConfigurationInvalid(Exception):
    """The signer cannot start; `problems` are all reasons, one line each."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        """Keep every problem."""
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """What the command line says."""

    policy: Path
    namespace: str
    kubeconfig: Path | None
    service: tuple[str, str] | None
    """Host and port of the API server of the cluster that the signer runs in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything that stays the same while the signer runs."""

    management: Connection
    namespace: str
    """The signer's own; the master keys' Secret is in it."""
    policies: Policies
    anchors: Mapping[str, TrustAnchors]
    """By the policy's name."""


def load(flags: Flags) -> Config:
    """Read and check all that the flags name.

    Raises:
        ConfigurationInvalid: with every problem.

    """
    problems: list[str] = []
    connection = _connection(flags, problems)
    policies = _policies(flags.policy, problems)
    anchors = {p.name: _anchors(p, problems) for p in (policies.all() if policies else ())}
    if problems or connection is None or policies is None:
        raise ConfigurationInvalid(tuple(problems))
    return Config(
        management=connection,
        namespace=flags.namespace,
        policies=policies,
        anchors=MappingProxyType(anchors),
    )


def _connection(flags: Flags, problems: list[str]) -> Connection | None:
    try:
        if flags.kubeconfig is not None:
            connection = parse_kubeconfig(flags.kubeconfig.read_bytes())
        elif flags.service is not None:
            connection = in_cluster(*flags.service, SERVICE_ACCOUNT)
        else:
            problems.append("no --kubeconfig is given, and this is no pod of a cluster")
            return None
        client_context(connection)
    except OSError as e:
        problems.append(f"{flags.kubeconfig}: {e.strerror}")
    except KubeconfigRefused as e:
        problems.append(f"{flags.kubeconfig or SERVICE_ACCOUNT}: {e.message}")
    else:
        return connection
    return None


def _policies(path: Path, problems: list[str]) -> Policies | None:
    try:
        return load_policies(path.read_text(encoding="utf-8"))
    except OSError as e:
        problems.append(f"{path}: {e.strerror}")
    except UnicodeDecodeError:
        problems.append(f"{path}: it is not UTF-8")
    except PolicyFileInvalid as e:
        problems.extend(f"{path}: {problem}" for problem in e.problems)
    return None


def _anchors(policy: Policy, problems: list[str]) -> TrustAnchors:
    if not policy.certificate_authorities:
        return NO_ANCHORS
    try:
        return load_trust_anchors(
            dict(_files(policy.certificate_authorities)),
            dict(_files(policy.certificate_revocation_lists)),
        )
    except OSError as e:
        problems.append(f"policy {policy.name}: {e.filename}: {e.strerror}")
    except ValueError as e:
        problems.append(f"policy {policy.name}: {e}")
    return NO_ANCHORS


def _files(paths: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each file; of a folder, those in it that are not hidden."""
    for path in map(Path, paths):
        found = sorted(path.iterdir()) if path.is_dir() else [path]
        for file in found:
            # A mounted ConfigMap keeps its versions in hidden folders beside the files.
            if file == path or (file.is_file() and not file.name.startswith(".")):
                yield str(file), file.read_bytes()
