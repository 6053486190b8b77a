"""Flags that the command lines of the signers and of operators share."""

import argparse
from importlib.metadata import version

from signer.kinds.cluster import ClusterKey


def parse_cluster_key(text: str) -> ClusterKey:
    """Return a Cluster's key; the type of an argument. Raises `ArgumentTypeError`."""
    namespace, _, name = text.partition("/")
    if not namespace or not name or "/" in name:
        raise argparse.ArgumentTypeError("must be NAMESPACE/NAME")
    return ClusterKey(namespace=namespace, name=name)


def add_version(parser: argparse.ArgumentParser) -> None:
    """Add --version, which prints the version of this package."""
    parser.add_argument(
        "--version",
        action="version",
        version=version("node-attestation"),
        help="print the version and exit",
    )


def add_command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, what: str
) -> argparse.ArgumentParser:
    """Add a command or an action, whose help is `what`."""
    return commands.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
