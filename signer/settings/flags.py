"""Flags that the command lines of the signers and of operators share."""

import argparse
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import version
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

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


def open_log(name: str, stdin: TextIO) -> AbstractContextManager[TextIO]:
    """Open the log that --log names, in which other programs may have written any bytes.

    Raises `OSError`.
    """
    if name != "-":
        return Path(name).open(encoding="utf-8", errors="replace")
    if isinstance(stdin, TextIOWrapper):
        stdin.reconfigure(encoding="utf-8", errors="replace")
    return nullcontext(stdin)


def add_learn_flags(command: argparse.ArgumentParser) -> None:
    """Add the log to learn from, its good nodes and their Cluster."""
    command.add_argument(
        "--log",
        required=True,
        metavar="FILE",
        help="read the log of the signer from FILE; - is standard input",
    )
    command.add_argument(
        "--node",
        action="append",
        required=True,
        metavar="NAME",
        help="allow the values of this node, which must be known to be good; may be repeated",
    )
    command.add_argument(
        "--cluster",
        type=parse_cluster_key,
        metavar="NAMESPACE/NAME",
        help="the Cluster of the nodes; required if the log has such nodes of several Clusters",
    )
