"""The command line of `node-attestation-signer`; the only reader of arguments and environment."""

import argparse
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from threading import Event

from signer.audit import JsonFormatter
from signer.config import Config, ConfigurationInvalid, Flags, load
from signer.service import Service

_PROGRAM = "node-attestation-signer"
_COMMANDS = ("run", "check-config")
_LEVELS = ("debug", "info", "warning", "error")


def main() -> int:
    """Run one command; the exit status is 0 for done, 1 for failed, 2 for misused."""
    arguments = _parser().parse_args(_with_command(sys.argv[1:]))
    _log_to_stderr(arguments.log_level)
    try:
        config = load(_flags(arguments, os.environ))
    except ConfigurationInvalid as e:
        for problem in e.problems:
            sys.stderr.write(f"{_PROGRAM}: {problem}\n")
        return 2
    if arguments.command == "check-config":
        sys.stdout.write(_described(config))
        return 0
    return _run(config)


def _run(config: Config) -> int:
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        service = Service(config, agent=f"{_PROGRAM}/{version('node-attestation')}")
    except OSError as e:
        sys.stderr.write(f"{_PROGRAM}: --metrics-address: {e.strerror}\n")
        return 1
    service.run(stop)
    return 0


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
    for name in _COMMANDS:
        command = commands.add_parser(name, help=told[name], description=told[name])
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
    return parser


def _flags(arguments: argparse.Namespace, environment: Mapping[str, str]) -> Flags:
    host = environment.get("KUBERNETES_SERVICE_HOST")
    port = environment.get("KUBERNETES_SERVICE_PORT")
    return Flags(
        policy=arguments.policy,
        namespace=arguments.namespace,
        kubeconfig=arguments.kubeconfig,
        service=(host, port) if host and port else None,
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
