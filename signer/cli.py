"""The command line of `node-attestation-signer`; the only reader of arguments and environment."""

import argparse
import logging
import os
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from importlib.metadata import version
from io import TextIOWrapper
from pathlib import Path
from threading import Event
from typing import TextIO

from signer.config import Config, ConfigError, Flags, load
from signer.controller.audit import JsonFormatter
from signer.controller.controller import Controller
from signer.explain.command import Files, explain
from signer.explain.manifests import FilesInvalid
from signer.explain.report import NOT_NOW
from signer.model import ClusterKey
from signer.policy.learn import LearnError, draft_policy

_PROGRAM = "node-attestation-signer"
_COMMANDS = ("run", "check-config", "learn", "verify")
_LEVELS = ("debug", "info", "warning", "error")


def main() -> int:
    """Run one command; the exit status is 0 for done, 1 for failed, 2 for misused."""
    arguments = _parser().parse_args(_with_command(sys.argv[1:]))
    if arguments.command == "learn":
        return _learn(arguments)
    if arguments.command == "verify":
        return _verify(arguments)
    _log_to_stderr(arguments.log_level)
    try:
        config = load(_flags(arguments, os.environ))
    except ConfigError as e:
        return _misused(e.problems)
    if arguments.command == "check-config":
        sys.stdout.write(_described(config))
        return 0
    return _run(config)


def _run(config: Config) -> int:
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        service = Controller(config, agent=f"{_PROGRAM}/{version('node-attestation')}")
    except OSError as e:
        sys.stderr.write(f"{_PROGRAM}: --metrics-address: {e.strerror}\n")
        return 1
    service.run(stop)
    return 0


def _learn(arguments: argparse.Namespace) -> int:
    """Print a policy draft; the log's lines are the only input."""
    try:
        with _opened(arguments.log) as log:
            text = draft_policy(log, nodes=arguments.node, cluster=arguments.cluster)
    except LearnError as e:
        for problem in e.problems:
            sys.stderr.write(f"{_PROGRAM}: {problem}\n")
        return 1
    except OSError as e:
        sys.stderr.write(f"{_PROGRAM}: {arguments.log}: {e.strerror}\n")
        return 2
    sys.stdout.write(text)
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    """Print how the request would be judged; the exit status tells the verdict."""
    files = Files(
        requests=arguments.file,
        policy=arguments.policy,
        records=arguments.records,
        challenge_key_secret=arguments.master,
        cluster=arguments.cluster,
    )
    try:
        report, status = explain(
            files, now=arguments.now or datetime.now(UTC), json=arguments.output == "json"
        )
    except (FilesInvalid, ConfigError) as e:
        return _misused(e.problems)
    except Exception:  # noqa: BLE001 - a bug is no verdict, and Python's own status would be "denied"
        traceback.print_exc()
        return NOT_NOW
    sys.stdout.write(report)
    return status


def _misused(problems: Sequence[str]) -> int:
    for problem in problems:
        sys.stderr.write(f"{_PROGRAM}: {problem}\n")
    return 2


def _opened(name: str) -> AbstractContextManager[TextIO]:
    if name == "-":
        if isinstance(sys.stdin, TextIOWrapper):
            sys.stdin.reconfigure(encoding="utf-8", errors="replace")
        return nullcontext(sys.stdin)
    return Path(name).open(encoding="utf-8", errors="replace")


def _with_command(arguments: Sequence[str]) -> Sequence[str]:
    """Let `run` be left out."""
    named = arguments and (arguments[0] in _COMMANDS or arguments[0] in {"-h", "--help"})
    if named or "--version" in arguments:
        return arguments
    return ("run", *arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_PROGRAM, description="Verify nodes by their TPM and issue their certificates."
    )
    parser.add_argument("--version", action="version", version=version("node-attestation"))
    commands = parser.add_subparsers(dest="command", required=True)
    told = {"run": "sign until told to stop (the default)", "check-config": "only check the files"}
    for name, what in told.items():
        _add_service_options(commands.add_parser(name, help=what, description=what))
    what = "print a policy that allows what good nodes showed"
    _add_learning_options(commands.add_parser("learn", help=what, description=what))
    what = "explain offline how a stored request is judged, check by check"
    statuses = "exit status: 0 certified, challenged or approved; 1 denied; 2 misused; 3 neither"
    _add_verify_options(commands.add_parser("verify", help=what, description=what, epilog=statuses))
    return parser


def _add_service_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--policy", type=Path, required=True, metavar="FILE", help="policies of the clusters"
    )
    command.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="of the management cluster; without it, the pod's service account is used",
    )
    command.add_argument(
        "--namespace",
        default="node-attestation-system",
        metavar="NAME",
        help="the signer's own, for its Secret (%(default)s)",
    )
    command.add_argument(
        "--metrics-address",
        metavar="HOST:PORT",
        help="serve /metrics, /healthz and /readyz there, for anybody; without it, nowhere",
    )
    command.add_argument("--log-level", choices=_LEVELS, default="info", help="(%(default)s)")


def _add_learning_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--log",
        required=True,
        metavar="FILE",
        help="what the signer has logged; - for standard input",
    )
    command.add_argument(
        "--node",
        action="append",
        required=True,
        metavar="NAME",
        help="a node that is known to be good; may be given several times",
    )
    command.add_argument(
        "--cluster",
        type=_cluster_key,
        metavar="NAMESPACE/NAME",
        help="the nodes' Cluster, needed where nodes of several have these names",
    )


def _add_verify_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "file", type=Path, metavar="FILE", help="CertificateSigningRequests, as kubectl shows them"
    )
    command.add_argument(
        "--policy", type=Path, required=True, metavar="FILE", help="policies of the clusters"
    )
    command.add_argument(
        "--records",
        type=Path,
        nargs="+",
        required=True,
        metavar="FILE",
        help="objects of the management cluster, and Nodes of the workload cluster",
    )
    command.add_argument(
        "--master",
        type=Path,
        metavar="FILE",
        help="the signer's Secret; without it, no answer can be decided",
    )
    command.add_argument(
        "--cluster",
        type=_cluster_key,
        metavar="NAMESPACE/NAME",
        help="whose requests they are, needed where the records hold several Clusters",
    )
    command.add_argument(
        "--now",
        type=_instant,
        metavar="TIME",
        help="judge as of then, e.g. 2026-11-21T09:30:00Z; now by default",
    )
    command.add_argument("--output", choices=("text", "json"), default="text", help="(%(default)s)")


def _instant(text: str) -> datetime:
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        value = None
    if value is None or value.tzinfo is None:
        raise argparse.ArgumentTypeError("not a time like 2026-11-21T09:30:00Z")
    return value


def _cluster_key(text: str) -> ClusterKey:
    namespace, _, name = text.partition("/")
    if not namespace or not name:
        raise argparse.ArgumentTypeError("not NAMESPACE/NAME")
    return ClusterKey(namespace=namespace, name=name)


def _flags(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Flags:
    host = environment.get("KUBERNETES_SERVICE_HOST")
    port = environment.get("KUBERNETES_SERVICE_PORT")
    return Flags(
        policy=arguments.policy,
        namespace=arguments.namespace,
        kubeconfig=arguments.kubeconfig,
        in_cluster_endpoint=(host, port) if host and port else None,
        metrics_address=arguments.metrics_address,
    )


def _log_to_stderr(level: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    # Its own lines are of connections, which our errors tell of.
    logging.getLogger("urllib3").setLevel(logging.ERROR)


def _described(config: Config) -> str:
    lines = [f"management cluster: {config.management.server}", f"namespace: {config.namespace}"]
    for policy in config.policies.all():
        cluster = policy.cluster
        whose = f"{cluster.namespace}/{cluster.name}" if cluster else "every other Cluster"
        lines.append(f"policy {policy.name}: {whose}, trust {policy.trust.value}")
        left_out = config.anchors[policy.name].unreadable
        lines.extend(f"policy {policy.name}: left out: {problem}" for problem in left_out)
    return "\n".join(lines) + "\n"
