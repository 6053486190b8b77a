"""The command line: which subcommand, with which options and settings.

Settings (see `settings`) are flags of every subcommand and may also come before it. An option
belongs to one subcommand. A problem with a setting is not raised here: it is returned among the
`problems`, so that one error lists all of them.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from authenticator.config.setting_table import SETTINGS
from authenticator.errors import ConfigurationInvalid

PROGRAM: Final = "kubelet-authenticator-tpm"
BACKGROUND_COMMAND: Final = "background"
"""First argument of a background run; the arguments of the call that starts it follow."""

DEFAULT_COMMAND: Final = "credential"
DEFAULT_KUBECONFIG: Final = "/etc/kubernetes/kubelet.conf"
EPILOG: Final = """\
Settings come from flags, then from the cluster's exec extension in the kubeconfig (nodeName for
--node-name, and so on), then from defaults. API server, CA, TLS server name and proxy are those of
the kubeconfig's cluster; the exec stanza needs provideClusterInfo: true.

Exit codes: 0 done; 1 not now: refused, unavailable or out of time; 2 something has to be changed
first: usage, configuration, permissions or hardware.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """What the command line says. An option that is not of this command has its default."""

    command: str = DEFAULT_COMMAND
    flags: Mapping[str, str] = field(default_factory=dict)
    """Settings by their keys."""
    problems: tuple[str, ...] = ()
    """What was not understood."""
    verbose: bool = False
    kubeconfig: Path = Path(DEFAULT_KUBECONFIG)
    kubeconfig_explicit: bool = False
    """Whether `kubeconfig` was given, and is not the default."""
    json: bool = False
    manifest: bool = False
    cluster: str | None = None
    certificate: bool = False
    if_missing: bool = False
    replace: bool = False
    proxy_url: str | None = None
    addresses: tuple[str, ...] = ()
    dns: tuple[str, ...] = ()


def parse_arguments(arguments: Sequence[str]) -> Arguments:
    """Read the command line.

    Raises `ConfigurationInvalid`; `SystemExit` after --help, --version.
    """
    if not arguments:
        return Arguments()  # as join's kubeconfig has it: the parser would cost milliseconds
    try:
        parsed, unknown = build_parser().parse_known_args(arguments)
    except _UsageError as error:
        # argparse read the value of a mistyped flag as a command: name the flag as well.
        words = (argument.partition("=")[0] for argument in arguments)
        mistyped = [w for w in words if w.startswith("--") and w not in _TOP_LEVEL_OPTIONS]
        named = [f"unknown argument {word!r}" for word in mistyped if error.is_top_level]
        message = "; ".join([*named, str(error)])
        raise ConfigurationInvalid(f"{message}; see {error.prog} --help") from None
    values: dict[str, Any] = vars(parsed)
    command = values.pop("command") or DEFAULT_COMMAND
    flags = {setting.key: values.pop(setting.key) for setting in SETTINGS if setting.key in values}
    for name in ("addresses", "dns"):
        if name in values:
            values[name] = tuple(values[name])
    return Arguments(
        command=command,
        flags=flags,
        problems=tuple(f"unknown argument {argument!r} of {command}" for argument in unknown),
        kubeconfig_explicit="kubeconfig" in values,
        **values,
    )


_TOP_LEVEL_OPTIONS: Final = {"--help", "--verbose", "--version", *(s.flag for s in SETTINGS)}


class _UsageError(Exception):
    """A command line that argparse cannot read."""

    def __init__(self, message: str, prog: str) -> None:
        super().__init__(message)
        self.prog = prog
        self.is_top_level = prog == PROGRAM


class _Version(argparse.Action):
    """Prints the version. Looks it up only then, because that is slow."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Print it and exit."""
        from importlib.metadata import version  # noqa: PLC0415 - slow to import

        sys.stdout.write(f"{PROGRAM} {version('node-attestation')}\n")
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """Leaves out what is not given, and raises errors instead of printing its usage."""

    def __init__(self, **kwargs: Any) -> None:  # noqa: ANN401 - the base's
        super().__init__(
            formatter_class=argparse.RawDescriptionHelpFormatter,
            argument_default=argparse.SUPPRESS,
            allow_abbrev=False,
            **kwargs,
        )

    def error(self, message: str) -> NoReturn:
        """Raise the error."""
        raise _UsageError(message, self.prog)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line, with a subparser for each command."""
    parser = _Parser(
        prog=PROGRAM,
        usage=f"{PROGRAM} [COMMAND] [OPTION ...] [SETTING ...]",
        description="Gets the kubelet of this node its certificates; the TPM proves which node"
        " this is.",
        epilog=EPILOG,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    _add_common(parser)
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", title="commands", prog=PROGRAM
    )
    commands.default = None
    for name, (summary, add_options) in COMMANDS.items():
        subparser = commands.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            usage=f"{PROGRAM} {name} [OPTION ...] [SETTING ...]",
            epilog=EPILOG,
        )
        add_options(subparser)
        _add_common(subparser)
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="log each step on stderr; no secrets"
    )
    settings = parser.add_argument_group("settings")
    for setting in SETTINGS:
        settings.add_argument(
            setting.flag, dest=setting.key, metavar=setting.metavar, help=setting.help
        )


def _add_kubeconfig(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        type=Path,
        help=f"kubeconfig of the kubelet, which runs this program; default: {DEFAULT_KUBECONFIG}",
    )


def _add_output(parser: argparse.ArgumentParser) -> None:
    _add_kubeconfig(parser)
    parser.add_argument(
        "--output",
        dest="json",
        metavar="{text,json}",
        type=_is_json,
        help="print text (the default) or one JSON document",
    )


def _is_json(value: str) -> bool:
    if value not in {"text", "json"}:
        raise argparse.ArgumentTypeError(f"{value!r} is neither text nor json")
    return value == "json"


def _parse_cluster(text: str) -> str:
    namespace, _, name = text.partition("/")
    if not namespace or not name or "/" in name:
        raise argparse.ArgumentTypeError("must be NAMESPACE/NAME")
    return text


def _add_endorsement_key(parser: argparse.ArgumentParser) -> None:
    _add_output(parser)
    parser.add_argument(
        "--manifest", action="store_true", help="print an EndorsementKey object to create"
    )
    parser.add_argument(
        "--cluster",
        type=_parse_cluster,
        metavar="NAMESPACE/NAME",
        help="with --manifest: the Cluster to register the key of this machine for",
    )
    parser.add_argument(
        "--certificate",
        action="store_true",
        help="print the certificates that the TPM holds for the key, as PEM",
    )


def _add_join(parser: argparse.ArgumentParser) -> None:
    _add_kubeconfig(parser)
    parser.add_argument(
        "--replace",
        action="store_true",
        help="also replace a kubeconfig with another credential; without a bootstrap kubeconfig"
        " that credential requests the certificate",
    )
    parser.add_argument(
        "--proxy-url",
        metavar="URL",
        help="proxy to the API server, for this program and the kubelet; default: that of the"
        " bootstrap kubeconfig. HTTPS_PROXY is not used",
    )


def _add_serving(parser: argparse.ArgumentParser) -> None:
    _add_kubeconfig(parser)
    parser.add_argument(
        "--if-missing",
        action="store_true",
        help="only when there is no certificate that the kubelet can start with",
    )
    parser.add_argument(
        "--address",
        action="append",
        dest="addresses",
        metavar="IP",
        help="an IP address of this node; repeat it for each; default: those of the provider",
    )
    parser.add_argument(
        "--dns",
        action="append",
        metavar="NAME",
        help="a DNS name of this node; repeat it for each",
    )


COMMANDS: Final[Mapping[str, tuple[str, Callable[[argparse.ArgumentParser], None]]]] = {
    DEFAULT_COMMAND: (
        "print an ExecCredential, as client-go asks for it (the default)",
        lambda _: None,
    ),
    "status": (
        "show the certificates, the exchange, the cooldown and the last runs",
        _add_output,
    ),
    "doctor": ("check this node and show a remedy for each problem; change nothing", _add_output),
    "renew": ("get a new certificate now", _add_kubeconfig),
    "join": (
        "get the first certificate, then write a kubeconfig that runs this program",
        _add_join,
    ),
    "leave": (
        "let the kubelet get its certificates from the cluster again, without this program",
        _add_kubeconfig,
    ),
    "serving": (
        "get a serving certificate for the kubelet if it has none or its renewal is due",
        _add_serving,
    ),
    "endorsement-key": (
        "print the endorsement key of this machine, as a value of its annotation",
        _add_endorsement_key,
    ),
}
