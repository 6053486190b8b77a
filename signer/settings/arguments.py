"""The command line of `node-attestation-signer`: its subcommands, their flags and their help."""

import argparse
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from signer.settings.config import DEFAULT_INFRASTRUCTURE_GROUP
from signer.settings.flags import add_command, add_version, parse_cluster_key

PROGRAM: Final = "node-attestation-signer"
COMMANDS: Final = {
    "run": "watch the workload clusters and sign until SIGTERM or SIGINT (the default)",
    "explain": "explain offline, check by check, what the signer decides on stored requests",
}
_GLOBAL_FLAGS: Final = frozenset({"-h", "--help", "--version"})
_LEVELS: Final = ("debug", "info", "warning", "error")
_EPILOG: Final = (
    f"'{PROGRAM} COMMAND --help' shows the flags of a command. Exit status: 0 done; 1 failed; 2 the"
    " arguments or files are invalid; 3 explain cannot decide, or a request would wait."
)
_EXPLAIN_STATUSES: Final = (
    "Exit status: 0 if the request would be challenged, certified or approved; 1 if it would be"
    " denied; 2 if the arguments or files are invalid; 3 if it would wait or be ignored, or cannot"
    " be decided."
)


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; exit with a message for a wrong one, and with a text for --help.

    Flags without a command are those of `run`.
    """
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in _GLOBAL_FLAGS):
        arguments = ("run", *arguments)
    return build_parser().parse_args(arguments)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all subcommands; `command` names the chosen one."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Verify nodes of Cluster API by their TPM and issue their certificates.",
        epilog=_EPILOG,
    )
    add_version(parser)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, add_flags in (
        ("run", _add_run_flags),
        ("explain", _add_explain_flags),
    ):
        add_flags(add_command(commands, name, COMMANDS[name]))
    return parser


def _add_run_flags(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--create-default-policy",
        action="store_true",
        help="create the KubeletAttestationPolicy default, for all Clusters and with registered"
        " endorsement keys only, if there is no policy at the first start",
    )
    command.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="connect to the management cluster with FILE (default: the pod's service account)",
    )
    command.add_argument(
        "--namespace",
        default="",
        metavar="NAME",
        help="watch the Cluster API objects of this namespace only (default: all namespaces)",
    )
    command.add_argument(
        "--own-namespace",
        metavar="NAME",
        help="keep the Secret with the challenge keys in this namespace"
        " (default: $POD_NAMESPACE, or the namespace of the pod's service account)",
    )
    command.add_argument(
        "--infrastructure-group",
        action="append",
        dest="infrastructure_groups",
        metavar="GROUP",
        help="watch objects of this API group if Machines or Clusters refer to them as their"
        f" infrastructure; may be repeated (default: {DEFAULT_INFRASTRUCTURE_GROUP})",
    )
    command.add_argument(
        "--metrics-address",
        metavar="HOST:PORT",
        help="serve /metrics, /debug/clusters and probes over unauthenticated HTTP on this address"
        " (default: off)",
    )
    command.add_argument(
        "--metrics-secure",
        action="store_true",
        help="serve HTTPS with a self-signed certificate on that address, and metrics only to"
        " bearers of a token that may get /metrics (TokenReview and SubjectAccessReview)",
    )
    command.add_argument(
        "--log-level", choices=_LEVELS, default="info", help="log from this level (%(default)s)"
    )


def _add_explain_flags(command: argparse.ArgumentParser) -> None:
    command.epilog = _EXPLAIN_STATUSES
    command.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="CertificateSigningRequests, as kubectl get -o json or -o yaml writes them",
    )
    command.add_argument(
        "--objects",
        type=Path,
        nargs="+",
        required=True,
        metavar="FILE",
        help="objects and policies of the management cluster, and Nodes of the workload cluster",
    )
    command.add_argument(
        "--challenge-key-secret",
        type=Path,
        metavar="FILE",
        help="the Secret with the challenge keys; without it, no answer can be decided",
    )
    command.add_argument(
        "--cluster",
        type=parse_cluster_key,
        metavar="NAMESPACE/NAME",
        help="the Cluster of the requests; required if the objects hold several Clusters",
    )
    command.add_argument(
        "--now",
        type=_time,
        metavar="TIME",
        help="verify as of this time, such as 2026-11-21T09:30:00Z (default: now)",
    )
    command.add_argument(
        "--output", choices=("text", "json"), default="text", help="format (%(default)s)"
    )


def _time(text: str) -> datetime:
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        value = None
    if value is None or value.tzinfo is None:
        raise argparse.ArgumentTypeError("must be a time such as 2026-11-21T09:30:00Z")
    return value
