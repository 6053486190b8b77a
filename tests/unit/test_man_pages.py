"""The man pages have every command, flag and exit code of the programs, and no other."""

import argparse
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from authenticator.config import command_line
from authenticator.config.setting_table import SETTINGS
from signer.insecure import cli as insecure_cli
from signer.operator_cli import command_parser as operator_arguments
from signer.settings import arguments as signer_arguments

PACKAGING = Path(__file__).parents[2] / "packaging"
NODE = PACKAGING / "node/man/kubelet-authenticator-tpm.1"
SIGNER = PACKAGING / "signer/man/node-attestation-signer.8"
INSECURE = PACKAGING / "signer/insecure/node-attestation-insecure-signer.8"
OPERATOR = PACKAGING / "signer/man/kubectl-attestation.1"
FLAG = re.compile(r"(?<=Fl )-?(-?[A-Za-z][a-z-]*)")
SETTING = re.compile(r"^\.It Fl -([a-z-]+) Ar (\S+) Pq Va (\w+)$", re.MULTILINE)
PROGRAMS = {
    SIGNER: (signer_arguments.build_parser(), set(signer_arguments.COMMANDS), {"0", "1", "2", "3"}),
    OPERATOR: (
        operator_arguments.build_parser(),
        set(operator_arguments.COMMANDS),
        {"0", "1", "2", "3", "130"},
    ),
    INSECURE: (insecure_cli.build_parser(), set(), {"0", "2"}),
    NODE: (command_line.build_parser(), set(command_line.COMMANDS), {"0", "1", "2"}),
}


def actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield every flag and argument of a parser and of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from actions(command)


def flags(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield every flag of a parser and of its commands."""
    for action in actions(parser):
        yield from (f"-{option.lstrip('-')}" for option in action.option_strings)


def items(page: Path, macro: str) -> list[str]:
    """Return the list items of a man page: the text after `.It` and a macro."""
    result = re.findall(rf"^\.It {macro}(.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return [str(text) for text in result]


@pytest.mark.parametrize("page", PROGRAMS, ids=lambda page: page.name)
def test_page_has_every_flag_and_no_other(page: Path) -> None:
    parser, _, _ = PROGRAMS[page]
    documented = [
        f"-{flag.lstrip('-')}" for line in items(page, "Fl ") for flag in FLAG.findall("Fl " + line)
    ]
    assert len(documented) == len(set(documented))
    assert set(documented) == set(flags(parser))


@pytest.mark.parametrize("page", PROGRAMS, ids=lambda page: page.name)
def test_page_has_every_command_and_no_other(page: Path) -> None:
    _, commands, _ = PROGRAMS[page]
    assert set(items(page, "Cm ")) == commands


@pytest.mark.parametrize("page", PROGRAMS, ids=lambda page: page.name)
def test_page_has_every_exit_code_and_no_other(page: Path) -> None:
    _, _, codes = PROGRAMS[page]
    assert set(items(page, "(?=[0-9])")) == codes


@pytest.mark.parametrize("page", PROGRAMS, ids=lambda page: page.name)
def test_help_has_the_same_exit_codes(page: Path) -> None:
    parser, _, codes = PROGRAMS[page]
    text = " ".join(parser.format_help().split())
    _, statuses = re.split(r"Exit (?:codes|status): ", text)
    assert set(re.findall(r"(?:^|; )(\d+) ", statuses)) == codes


def test_documentation_of_the_operator_commands_has_the_same_exit_codes() -> None:
    _, _, codes = PROGRAMS[OPERATOR]
    document = (PACKAGING.parent / "docs/operator-cli.md").read_text(encoding="utf-8")
    section = document.partition("## Exit status")[2]
    assert set(re.findall(r"^\| (\d+) \|", section, re.MULTILINE)) == codes


@pytest.mark.parametrize("page", PROGRAMS, ids=lambda page: page.name)
def test_help_explains_every_flag_and_argument(page: Path) -> None:
    parser, _, _ = PROGRAMS[page]
    unexplained = [
        action.dest
        for action in actions(parser)
        if not action.help and not isinstance(action, argparse._SubParsersAction)
    ]
    assert unexplained == []


def test_settings_are_documented_with_their_keys() -> None:
    documented = SETTING.findall(NODE.read_text(encoding="utf-8"))
    expected = [
        (setting.flag.removeprefix("--"), setting.metavar, setting.key) for setting in SETTINGS
    ]
    assert documented == expected


@pytest.mark.parametrize("page", PROGRAMS, ids=lambda page: page.name)
def test_mandoc_finds_no_problem(page: Path) -> None:
    result = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "warning", page], capture_output=True, text=True, check=False
    )
    assert (result.stdout, result.stderr, result.returncode) == ("", "", 0)
