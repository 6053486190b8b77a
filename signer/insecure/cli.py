"""The entry point of `node-attestation-insecure-signer`; only it reads argv and environment."""

import argparse
import os
import secrets
import sys
import time
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Final

from signer.insecure.service import InsecureSigner, Settings
from signer.kube.transport.client import ApiClient
from signer.kube.transport.kubeconfig import Connection
from signer.logs import start_log
from signer.policy.section import parse_duration
from signer.settings.config import in_cluster_endpoint, load_connection
from signer.settings.flags import add_version, parse_cluster_key
from signer.signals import stop_on_signals
from signer.stacks import enlarge_stacks

PROGRAM: Final = "node-attestation-insecure-signer"
_EXIT_MISUSED: Final = 2
_SHUTDOWN_SECONDS: Final = 25
"""Less than the default of `terminationGracePeriodSeconds`."""
_EPILOG: Final = (
    "Exit status: 0 stopped by SIGTERM, SIGINT or SIGHUP; 2 the arguments or the kubeconfig are"
    " invalid."
)
_MIN_LIFETIME: Final = timedelta(minutes=10)
"""As the API server requires of `expirationSeconds`."""


def main() -> int:
    """Serve the listed Clusters until a signal ends it, and return the exit status."""
    enlarge_stacks()
    arguments = build_parser().parse_args()
    problems: list[str] = []
    connection = load_connection(arguments.kubeconfig, in_cluster_endpoint(os.environ), problems)
    if connection is None:
        sys.stderr.writelines(f"{PROGRAM}: {problem}\n" for problem in problems)
        return _EXIT_MISUSED
    start_log("INFO")
    _signer(connection, arguments).run(stop_on_signals(_SHUTDOWN_SECONDS))
    return 0


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Give each Machine of the listed Clusters one client certificate, WITHOUT"
        " attestation. For development only.",
        epilog=_EPILOG,
    )
    add_version(parser)
    parser.add_argument(
        "--cluster",
        action="append",
        dest="clusters",
        required=True,
        type=parse_cluster_key,
        metavar="NAMESPACE/NAME",
        help="serve this Cluster if it names the insecure signer alone; may be repeated",
    )
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="connect to the management cluster with FILE (default: the pod's service account)",
    )
    parser.add_argument(
        "--certificate-lifetime",
        type=_lifetime,
        default="8760h",
        metavar="DURATION",
        help="lifetime of the certificates, which cannot be renewed (%(default)s)",
    )
    return parser


def _lifetime(text: str) -> timedelta:
    lifetime = parse_duration(text)
    if lifetime is None or lifetime < _MIN_LIFETIME:
        raise argparse.ArgumentTypeError("must be a duration like 8760h, at least 10m")
    return lifetime


def _signer(connection: Connection, arguments: argparse.Namespace) -> InsecureSigner:
    agent = f"{PROGRAM}/{version('node-attestation')}"
    settings = Settings(
        program=PROGRAM,
        clusters=tuple(dict.fromkeys(arguments.clusters)),
        lifetime=arguments.certificate_lifetime,
        now=lambda: datetime.now(UTC),
        monotonic=time.monotonic,
        random=secrets.token_bytes,
    )
    return InsecureSigner(ApiClient("management", connection, user_agent=agent), settings)
