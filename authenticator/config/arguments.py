"""The command line: which subcommand, which settings; all problems told at once.

Flags are the settings of `config`, in any place; a subcommand may follow or precede them.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from authenticator.config.settings import SETTINGS
from authenticator.errors import ConfigurationInvalid

PROGRAM: Final = "kubelet-authenticator-tpm"
BACKGROUND_COMMAND: Final = "behind"
"""What a detached run is started with, before the arguments of the call that starts it."""

DEFAULT_KUBECONFIG: Final = "/etc/kubernetes/kubelet.conf"
COMMANDS: Final = {
    "credential": "print an ExecCredential, as client-go runs it (the default)",
    "status": "show the certificate, its renewal point, the last runs and the cooldown",
    "doctor": "look for everything that could be wrong on this node, each with its remedy",
    "renew": "get a new certificate now",
    "join": "get the first certificate, then write the kubeconfig with which the kubelet goes on",
    "serving": "keep the kubelet's serving certificate current; nothing happens before it is due",
    "endorsement-key": "print this machine's endorsement key",
}

_OF_ONE_COMMAND: Final = (
    ("--manifest", "manifest", "endorsement-key"),
    ("--cluster", "cluster", "endorsement-key"),
    ("--if-due", "if_due", "renew"),
    ("--if-missing", "if_missing", "serving"),
    ("--replace", "replace", "join"),
    ("--address", "addresses", "serving"),
    ("--dns", "dns", "serving"),
)
EPILOG: Final = """\
Settings come from flags, then from the cluster's exec extension in the kubeconfig (nodeName for
--node-name, and so on), then from defaults. API server, CA, TLS server name and proxy are those of
the kubeconfig's cluster; the exec stanza needs provideClusterInfo: true.

Exit codes: 0 done; 1 not now: refused, unavailable or out of time; 2 something has to be changed
first: usage, configuration, permissions or hardware.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """What the command line says."""

    command: str
    flags: Mapping[str, str]
    """By the keys of the settings."""
    problems: tuple[str, ...]
    """What was not understood; settings have their own problems, told together with these."""
    json: bool
    manifest: bool
    cluster: str | None
    if_due: bool
    if_missing: bool
    replace: bool
    addresses: tuple[str, ...]
    dns: tuple[str, ...]
    kubeconfig: str


class _Version(argparse.Action):
    """Looks the version up when it is asked for: that takes as long as all else here."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print it, and leave."""
        from importlib.metadata import version  # noqa: PLC0415 - see above

        sys.stdout.write(f"{PROGRAM} {version('node-attestation')}\n")
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """Raises instead of printing usage: an error is one line."""

    def error(self, message: str) -> NoReturn:
        """Raise ConfigurationInvalid."""
        raise ConfigurationInvalid(f"{message}; see {PROGRAM} --help")


def parse_arguments(arguments: Sequence[str]) -> Arguments:
    """Read the command line. Raises ConfigurationInvalid, and SystemExit after --help, --version.

    What is unknown is among the `problems`, so that it is told with those of the settings.
    """
    found, unknown = _parser().parse_known_intermixed_args(arguments)
    words = vars(found)
    flags = {
        setting.key: words[setting.key] for setting in SETTINGS if words[setting.key] is not None
    }
    problems = [f"unknown argument {argument!r}" for argument in unknown]
    if found.command not in COMMANDS:
        problems.append(f"unknown command {found.command!r}: not one of {', '.join(COMMANDS)}")
    problems += [
        f"{option} is for {command}"
        for option, dest, command in _OF_ONE_COMMAND
        if words[dest] and found.command != command
    ]
    return Arguments(
        command=found.command if found.command in COMMANDS else "credential",
        flags=flags,
        problems=tuple(problems),
        json=found.output == "json",
        manifest=found.manifest,
        cluster=found.cluster,
        if_due=found.if_due,
        if_missing=found.if_missing,
        replace=found.replace,
        addresses=tuple(found.addresses),
        dns=tuple(found.dns),
        kubeconfig=found.kubeconfig,
    )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROGRAM,
        description="Gets this node's kubelet its client certificate, with the TPM as the proof.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    told = "; ".join(f"{name}: {purpose}" for name, purpose in COMMANDS.items())
    parser.add_argument("command", nargs="?", default="credential", metavar="COMMAND", help=told)
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="of commands")
    parser.add_argument("--manifest", action="store_true", help="of endorsement-key: as an object")
    parser.add_argument(
        "--cluster",
        metavar="NAMESPACE/NAME",
        help="of endorsement-key --manifest: the Cluster to register this machine's key for",
    )
    parser.add_argument("--if-due", action="store_true", help="of renew: only when it is due")
    parser.add_argument(
        "--if-missing",
        action="store_true",
        help="of serving: only when there is none that the kubelet can start with",
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="of join: also where the kubeconfig has another credential; without a bootstrap"
        " kubeconfig the certificate is asked for with that one",
    )
    parser.add_argument(
        "--address",
        action="append",
        dest="addresses",
        default=[],
        metavar="IP",
        help="of serving: an address of this node, once for each; without any: the provider's",
    )
    parser.add_argument(
        "--dns",
        action="append",
        default=[],
        metavar="NAME",
        help="of serving: a DNS name of this node, once for each",
    )
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        default=DEFAULT_KUBECONFIG,
        help=f"of commands: the kubelet's, which names this program; default: {DEFAULT_KUBECONFIG}",
    )
    settings = parser.add_argument_group("settings")
    for setting in SETTINGS:
        settings.add_argument(
            setting.flag, dest=setting.key, metavar=setting.metavar, help=setting.help
        )
    return parser
