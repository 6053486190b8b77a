"""The command line of operators: commands, their flags and their help.

Imports nothing heavy: shell completion builds the parser at each press of the tab key.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

from common.errors import NodeNameInvalid
from common.node_identity import require_node_name
from signer.kinds.cluster import ClusterKey
from signer.operator_cli.errors import EXIT_MISUSED
from signer.settings.flags import add_command, add_version, parse_cluster_key

PROGRAM: Final = "kubectl-attestation"
_FORMATS: Final = ("table", "wide", "json", "yaml")
_EPILOG: Final = (
    "Exit status: 0 done, or all is well; 1 the answer is no (a problem, a denied request, an"
    " object that does not exist); 2 the arguments or files are invalid; 3 it cannot be decided or"
    " done now (an API server, a credential or a permission is missing); 130 interrupted."
)
COMMANDS: Final[Mapping[str, str]] = {
    "status": "show whether the signer runs, and count Clusters, nodes and endorsement keys",
    "clusters": "list the Clusters: opt-in, served or not, Machines, nodes, pending requests",
    "problems": "list what is to be done: refused and overdue renewals, unknown TPMs, Clusters",
    "nodes": "list the nodes that have attested, and the Machines whose nodes have not",
    "pending": "list the requests that wait, with the reason and the next step, and unknown TPMs",
    "approve": "register the unknown TPM that was offered for a Machine",
    "register": "register the endorsement key of a machine, or an inventory of many",
    "replace": "register the new key of a machine and ban its old one",
    "ban": "issue no more certificates for an endorsement key, and end the present one",
    "release": "let the next owner of a machine use its endorsement key",
    "kubeconfig": "give the signer a kubeconfig with few rights on a workload cluster",
    "entry-credential": "print the kubeconfig with which nodes come back after months off",
    "explain": "explain, check by check, how the signer judges a request of a live cluster",
    "policy": "check policies",
    "pcrs": "review what nodes measured, accept it in a policy, import or withdraw values",
    "version": "print the version of this program",
    "doctor": "examine the installation, the Clusters, and rights that avoid the attestation",
    "collect": "write one archive for a bug report, without secrets and keys",
}
_KEY_HELP: Final = (
    "the endorsement key: sha256:HEX, the first 6 digits or more of a recorded key, or"
    " NAMESPACE/CLUSTER/NODE"
)
_NEW_KEY_HELP: Final = (
    "the endorsement key: sha256:HEX, or a FILE (- is standard input) with what"
    " `kubelet-authenticator-tpm endorsement-key` prints, PEM, or a manifest"
)
_Adder = Callable[[argparse.ArgumentParser], None]


def parse_arguments(arguments: Sequence[str], program: str = PROGRAM) -> argparse.Namespace:
    """Parse a command line; exit with a message for a wrong one, and with a text for --help."""
    parser = build_parser(program)
    if not arguments:
        parser.print_help(sys.stderr)
        raise SystemExit(EXIT_MISUSED)
    return parser.parse_args(arguments)


def build_parser(program: str = PROGRAM) -> argparse.ArgumentParser:
    """Return the parser of all commands; `command` names the chosen one."""
    parser = argparse.ArgumentParser(
        prog=program,
        description="Operate the TPM attestation of the nodes of Cluster API.",
        epilog=_EPILOG,
    )
    add_version(parser)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, what in COMMANDS.items():
        command = add_command(commands, name, what)
        for add in _FLAGS[name]:
            add(command)
    return parser


def _add_connection(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--kubeconfig", metavar="FILE", help="connect with this file (default: $KUBECONFIG)"
    )
    command.add_argument(
        "--context", metavar="NAME", help="the kubeconfig's context of the management cluster"
    )
    command.add_argument(
        "--as",
        dest="as_user",
        metavar="USER",
        help="act as this user on the management cluster; RBAC must allow you to impersonate it",
    )


def _add_selection(command: argparse.ArgumentParser) -> None:
    _add_connection(command)
    namespaces = command.add_mutually_exclusive_group()
    namespaces.add_argument(
        "-n", "--namespace", default="", metavar="NAME", help="only Clusters of this namespace"
    )
    namespaces.add_argument(
        "-A",
        "--all-namespaces",
        action="store_true",
        help="Clusters of all namespaces; this is the default",
    )
    _add_cluster(command, "only this Cluster")


def _add_watch(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "-w",
        "--watch",
        action="store_true",
        help="read again every 5 seconds, and print what is new or has changed, until Ctrl-C",
    )


def _add_cluster(
    command: argparse.ArgumentParser, what: str, name: str = "--cluster"
) -> argparse.Action:
    return command.add_argument(name, type=parse_cluster_key, metavar="NAMESPACE/NAME", help=what)


def _add_output(command: argparse.ArgumentParser, formats: Sequence[str] = _FORMATS) -> None:
    command.add_argument(
        "-o", "--output", choices=formats, default="table", help="format (%(default)s)"
    )


def _add_list_output(command: argparse.ArgumentParser) -> None:
    _add_output(command, (*_FORMATS, "name"))


def _add_yes(command: argparse.ArgumentParser) -> None:
    _add_confirmation(command, ("none", "server"), "")


def _add_changed_policy(action: argparse.ArgumentParser) -> None:
    what = "; client: print the changed policy as YAML, and write nothing"
    _add_confirmation(action, ("none", "server", "client"), what)


def _add_confirmation(command: argparse.ArgumentParser, dry_runs: Sequence[str], what: str) -> None:
    command.add_argument(
        "--dry-run",
        choices=dry_runs,
        default="none",
        help=f"server: let the API server check what would be written, and write nothing{what}",
    )
    command.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")


def _add_key(command: argparse.ArgumentParser) -> None:
    command.add_argument("key", metavar="KEY", help=_KEY_HELP)


def _add_approve(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "target",
        metavar="MACHINE|KEY",
        help="a Machine, as NAME or NAMESPACE/NAME, or the key as sha256:HEX with all 64 digits",
    )
    command.add_argument(
        "key",
        metavar="KEY",
        nargs="?",
        help="the key of the Machine; required if several were offered for it",
    )
    command.add_argument(
        "-n", "--namespace", default="", metavar="NAME", help="only Machines of this namespace"
    )
    _add_cluster(command, "only Machines of this Cluster")


def _add_register(command: argparse.ArgumentParser) -> None:
    command.add_argument("key", metavar="KEY", nargs="?", help=_NEW_KEY_HELP)
    _add_cluster(command, "the Cluster of the machine; with --inventory, of rows without one")
    command.add_argument("--machine", metavar="NAME", help="the name of its Machine")
    command.add_argument("--provider-id", metavar="ID", help="its provider ID")
    command.add_argument("--node", metavar="NAME", help="the name of its node")
    command.add_argument(
        "--inventory",
        type=Path,
        metavar="FILE",
        help="register all rows of a CSV or JSON file with key, cluster, machine, providerID, node",
    )


def _add_new_key(command: argparse.ArgumentParser) -> None:
    command.add_argument("new_key", metavar="NEW-KEY", help=_NEW_KEY_HELP)


def _add_reason(command: argparse.ArgumentParser, default: str | None = None) -> None:
    command.add_argument(
        "--reason",
        default=default,
        metavar="TEXT",
        help="why the key is banned; all who read EndorsementKeys see it",
    )


def _add_ban(command: argparse.ArgumentParser) -> None:
    _add_reason(command)
    command.add_argument(
        "--node",
        type=_parse_node,
        metavar="NAMESPACE/CLUSTER/NODE",
        help="end the certificates of this node, too, which may be the key's; a restore of the"
        " management cluster may have lost the record",
    )
    command.add_argument(
        "--lift", action="store_true", help="lift the ban; what it ended stays ended"
    )
    command.add_argument(
        "--certificates-too",
        action="store_true",
        help="with --lift, after a false alarm: what the ban ended is valid again",
    )


def _parse_node(text: str) -> tuple[ClusterKey, str]:
    cluster, _, node = text.rpartition("/")
    try:
        return parse_cluster_key(cluster), require_node_name(node)
    except (argparse.ArgumentTypeError, NodeNameInvalid):
        raise argparse.ArgumentTypeError("must be NAMESPACE/CLUSTER/NODE") from None


def _add_now(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--now",
        action="store_true",
        help="wait until the node of the banned key cannot write with its present certificate;"
        " reads go on until it expires",
    )


def _add_release(command: argparse.ArgumentParser) -> None:
    _add_cluster(command, "the Cluster of the former owner")
    command.add_argument(
        "--provider-id", metavar="ID", help="only one machine of that Cluster (default: all)"
    )


def _add_named_cluster(command: argparse.ArgumentParser) -> None:
    _add_cluster(command, "the Cluster to connect to", "cluster")


def _add_explain(command: argparse.ArgumentParser) -> None:
    _add_cluster(command, "the Cluster of the request").required = True
    _add_output(command, ("table", "json"))
    command.add_argument("csr", metavar="CSR", help="the name of the request")
    command.add_argument(
        "--challenge-keys",
        action="store_true",
        help="read the challenge keys, without which no answer can be decided",
    )


def _add_signer_namespace(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--signer-namespace",
        default="node-attestation-system",
        metavar="NAME",
        help="the namespace of the signer (%(default)s)",
    )


def _add_policy(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", required=True)
    what = "read policies as the signer does, and compare them with the Clusters"
    check = add_command(actions, "check", what)
    _add_selection(check)
    _add_output(check)
    check.add_argument(
        "file",
        type=Path,
        nargs="?",
        metavar="FILE",
        help="policies to lay over the KubeletAttestationPolicies, as kubectl diff does",
    )
    check.add_argument(
        "--offline", action="store_true", help="read FILE only, and compare it with nothing"
    )
    _add_signer_namespace(check)


def _add_pcrs(command: argparse.ArgumentParser) -> None:
    actions = command.add_subparsers(dest="action", required=True)
    for name, what, adders in (
        (
            "review",
            "group nodes by the boot that is not allowed or only recorded, and list unused values",
            (_add_list_output,),
        ),
        (
            "accept",
            "allow what nodes measured, in their policy, in another one or in a new one",
            (_add_accept, _add_changed_policy),
        ),
        (
            "withdraw",
            "remove a value that no node has any more from its policy",
            (_add_group, _add_changed_policy),
        ),
        (
            "import",
            "add the PCR values that a vendor predicts for its image, and end the former ones",
            (_add_import, _add_changed_policy),
        ),
    ):
        action = add_command(actions, name, what)
        for add in (_add_connection, *adders):
            add(action)


def _add_group(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "targets", nargs=1, metavar="GROUP", help="the group, as `pcrs review` shows it"
    )


def _add_accept(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "targets",
        nargs="+",
        metavar="GROUP|NODE",
        help="a group, as `pcrs review` shows it, or a node as NAMESPACE/CLUSTER/NODE, whose boot"
        " must be known to be good",
    )
    action.add_argument(
        "--policy",
        metavar="NAME",
        help="the KubeletAttestationPolicy to change; one that does not exist is created for the"
        " Cluster of the nodes (default: the policy of the nodes)",
    )
    action.add_argument(
        "--until",
        type=_parse_last_day,
        metavar="DATE",
        help="the values count until the end of this day (UTC), as YYYY-MM-DD",
    )


def _add_import(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="the predictions: what pcrsys, compute-pcrs or `systemd-measure calculate` prints",
    )
    action.add_argument(
        "--key", type=Path, required=True, metavar="VENDOR", help="the vendor's public key, PEM"
    )
    action.add_argument(
        "--signature",
        type=Path,
        metavar="FILE",
        help="the vendor's signature of the predictions, base64 (default: their name and .sig)",
    )
    action.add_argument(
        "--policy",
        metavar="NAME",
        help="the KubeletAttestationPolicy; required if several have lists of PCR values",
    )
    action.add_argument(
        "--until",
        type=_parse_last_day,
        metavar="DATE",
        help="the former values count until the end of this day (UTC), as YYYY-MM-DD (default: 30"
        " days from now)",
    )


def _parse_last_day(text: str) -> datetime:
    """Return the end of a day."""
    try:
        day = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
        return day + timedelta(days=1)
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError("must be a day like 2026-12-31") from None


def _add_account(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--signer-account",
        default="node-attestation-signer",
        metavar="NAME",
        help="the ServiceAccount of the signer (%(default)s)",
    )


def _add_archive(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "file",
        type=Path,
        nargs="?",
        metavar="FILE",
        help="the archive, which must not exist (default: node-attestation-TIME.tar.gz)",
    )


_REPLACED: Final = partial(_add_reason, default="mainboard or TPM replaced")
_FLAGS: Final[Mapping[str, Sequence[_Adder]]] = {
    "status": (_add_selection, _add_output, _add_signer_namespace),
    "clusters": (_add_selection, _add_list_output, _add_watch, _add_signer_namespace),
    "problems": (_add_selection, _add_output, _add_signer_namespace, _add_watch),
    "nodes": (_add_selection, _add_list_output, _add_watch),
    "pending": (_add_selection, _add_list_output, _add_watch),
    "approve": (_add_connection, _add_approve, _add_yes),
    "register": (_add_connection, _add_register, _add_yes),
    "replace": (_add_connection, _add_key, _add_new_key, _REPLACED, _add_now, _add_yes),
    "ban": (_add_connection, _add_key, _add_ban, _add_now, _add_yes),
    "release": (_add_connection, _add_key, _add_release, _add_yes),
    "kubeconfig": (_add_connection, _add_named_cluster),
    "entry-credential": (_add_connection, _add_named_cluster),
    "explain": (_add_connection, _add_explain, _add_signer_namespace),
    "policy": (_add_policy,),
    "pcrs": (_add_pcrs,),
    "version": (_add_output,),
    "doctor": (_add_selection, _add_output, _add_signer_namespace, _add_account),
    "collect": (_add_selection, _add_signer_namespace, _add_archive),
}
