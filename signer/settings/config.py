"""The configuration of the signer: one value, from the flags and the files that they name.

`load` reports all problems together, and never replaces a wrong value by a default.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from signer.errors import KubeconfigRefused, ProblemsError
from signer.kube.transport.kubeconfig import Connection, in_cluster, parse_kubeconfig
from signer.kube.transport.tls import client_context

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where the kubelet mounts token, CA and namespace of a pod's service account."""
DEFAULT_INFRASTRUCTURE_GROUP: Final = "infrastructure.cluster.x-k8s.io"
_MAX_PORT: Final = 65535
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_API_GROUP: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([-.a-z0-9]*[a-z0-9])?")


class ConfigError(ProblemsError):
    """The configuration is invalid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """The flags of `run`, and what the environment adds to them."""

    create_default_policy: bool
    kubeconfig: Path | None
    in_cluster_endpoint: tuple[str, str] | None
    """Host and port of the API server of the cluster that the signer runs in."""
    own_namespace: str | None
    """`None`: the namespace of the pod's service account."""
    watched_namespace: str
    """Empty: all namespaces."""
    infrastructure_groups: tuple[str, ...]
    metrics_address: str | None
    """`HOST:PORT`."""
    metrics_secure: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The configuration that the signer starts with."""

    management: Connection
    own_namespace: str
    """The namespace with the Secret of the challenge keys."""
    watched_namespace: str
    """The namespace of the Clusters that are served; empty for all."""
    infrastructure_groups: tuple[str, ...]
    """API groups of infrastructure objects that are watched."""
    create_default_policy: bool
    """Whether the first start creates a policy for all Clusters, if there is none."""
    metrics_address: tuple[str, int] | None
    metrics_secure: bool
    """Whether metrics are served with TLS, to authorized readers only."""


def load(flags: Flags) -> Config:
    """Read and check everything that the flags name. Raises `ConfigError` with every problem."""
    problems: list[str] = []
    connection = load_connection(flags.kubeconfig, flags.in_cluster_endpoint, problems)
    own_namespace = _own_namespace(flags.own_namespace, problems)
    if flags.watched_namespace:
        _check(_NAMESPACE, flags.watched_namespace, "--namespace", "a namespace", problems)
    for group in flags.infrastructure_groups:
        _check(_API_GROUP, group, "--infrastructure-group", "an API group", problems)
    metrics_address = _metrics_address(flags.metrics_address, problems)
    if flags.metrics_secure and flags.metrics_address is None:
        problems.append("--metrics-secure requires --metrics-address")
    if problems or connection is None:
        raise ConfigError(*problems)
    return Config(
        management=connection,
        own_namespace=own_namespace,
        watched_namespace=flags.watched_namespace,
        infrastructure_groups=flags.infrastructure_groups,
        create_default_policy=flags.create_default_policy,
        metrics_address=metrics_address,
        metrics_secure=flags.metrics_secure,
    )


def in_cluster_endpoint(environment: Mapping[str, str]) -> tuple[str, str] | None:
    """Return host and port of the API server of the cluster that this process runs in."""
    host = environment.get("KUBERNETES_SERVICE_HOST")
    port = environment.get("KUBERNETES_SERVICE_PORT")
    return (host, port) if host and port else None


def load_connection(
    kubeconfig: Path | None, in_cluster_endpoint: tuple[str, str] | None, problems: list[str]
) -> Connection | None:
    """Return the connection to the management cluster, else add the problem."""
    if kubeconfig is not None:
        read = partial(_read_kubeconfig, kubeconfig)
    elif in_cluster_endpoint is not None:
        read = partial(in_cluster, *in_cluster_endpoint, SERVICE_ACCOUNT)
    else:
        problems.append("--kubeconfig is required outside of a pod")
        return None
    try:
        connection = replace(read(), read_again=read)
        client_context(connection)
    except OSError as error:
        problems.append(f"{kubeconfig}: {error.strerror}")
    except KubeconfigRefused as error:
        problems.append(f"{kubeconfig or SERVICE_ACCOUNT}: {error.message}")
    else:
        return connection
    return None


def _read_kubeconfig(path: Path) -> Connection:
    return parse_kubeconfig(path.read_bytes())


def _own_namespace(name: str | None, problems: list[str]) -> str:
    if name is None:
        try:
            name = (SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            problems.append("--own-namespace or POD_NAMESPACE is required outside of a pod")
            return ""
    _check(_NAMESPACE, name, "--own-namespace", "a namespace", problems)
    return name


def _check(grammar: re.Pattern[str], value: str, flag: str, what: str, problems: list[str]) -> None:
    if not grammar.fullmatch(value):
        problems.append(f"{flag} {value}: must be the name of {what}")


def _metrics_address(text: str | None, problems: list[str]) -> tuple[str, int] | None:
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > _MAX_PORT:
        problems.append(f"--metrics-address {text}: must be HOST:PORT")
        return None
    return host.removeprefix("[").removesuffix("]"), int(port)
