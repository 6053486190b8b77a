"""What the signer is told at its start: one value, from flags and the files that they name.

Everything that is wrong is told at once, and nothing that is wrong is repaired by a default.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from signer.errors import KubeconfigRefused
from signer.kube.kubeconfig import Connection, in_cluster, parse_kubeconfig
from signer.kube.tls import client_context
from signer.policy import Policy, PolicyFileInvalid, PolicySet, load_policies
from signer.trust_bundles import TrustBundleInvalid, load_trust_bundle
from signer.verify.x509.trust_anchors import NO_ANCHORS, TrustAnchors

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_LAST_PORT: Final = 65535


class ConfigError(Exception):
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
    in_cluster_endpoint: tuple[str, str] | None
    """Host and port of the API server of the cluster that the signer runs in."""
    metrics_address: str | None
    """`HOST:PORT`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What the signer starts with; only the trust anchors may change while it runs."""

    management: Connection
    namespace: str
    """The signer's own; the master keys' Secret is in it."""
    policies: PolicySet
    anchors: Mapping[str, TrustAnchors]
    """By the policy's name, as they are at the start."""
    metrics_address: tuple[str, int] | None


def load(flags: Flags) -> Config:
    """Read and check all that the flags name.

    Raises:
        ConfigurationInvalid: with every problem.

    """
    problems: list[str] = []
    connection = _connection(flags, problems)
    policies, anchors = _trust(flags.policy, problems)
    metrics_address = _metrics_address(flags.metrics_address, problems)
    if problems or connection is None or policies is None:
        raise ConfigError(tuple(problems))
    return Config(
        management=connection,
        namespace=flags.namespace,
        policies=policies,
        anchors=MappingProxyType(anchors),
        metrics_address=metrics_address,
    )


def load_policy_file(path: Path) -> tuple[PolicySet, Mapping[str, TrustAnchors]]:
    """Read policies, and the trust anchors that they name, by the policies' names.

    Raises:
        ConfigurationInvalid: with every problem.

    """
    problems: list[str] = []
    policies, anchors = _trust(path, problems)
    if problems or policies is None:
        raise ConfigError(tuple(problems))
    return policies, anchors


def _trust(path: Path, problems: list[str]) -> tuple[PolicySet | None, Mapping[str, TrustAnchors]]:
    policies = _policies(path, problems)
    return policies, {p.name: _anchors(p, problems) for p in (policies.all() if policies else ())}


def _connection(flags: Flags, problems: list[str]) -> Connection | None:
    try:
        if flags.kubeconfig is not None:
            connection = parse_kubeconfig(flags.kubeconfig.read_bytes())
        elif flags.in_cluster_endpoint is not None:
            connection = in_cluster(*flags.in_cluster_endpoint, SERVICE_ACCOUNT)
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


def _policies(path: Path, problems: list[str]) -> PolicySet | None:
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
    try:
        return load_trust_bundle(policy)
    except TrustBundleInvalid as e:
        problems.append(f"policy {policy.name}: {e}")
    return NO_ANCHORS


def _metrics_address(text: str | None, problems: list[str]) -> tuple[str, int] | None:
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > _LAST_PORT:
        problems.append(f"--metrics-address {text}: not HOST:PORT")
        return None
    return host.removeprefix("[").removesuffix("]"), int(port)
