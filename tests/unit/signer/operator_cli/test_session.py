"""Confirmation and progress."""

import argparse
import io
from datetime import UTC, datetime
from threading import Event

import pytest

from signer.operator_cli import session as session_module
from signer.operator_cli.errors import EXIT_OK, EXIT_UNDECIDED, Rejected
from signer.operator_cli.management.api import ManagementApi
from signer.operator_cli.output import Column, field
from signer.operator_cli.session import Session


class Terminal(io.StringIO):
    """Standard input of a person."""

    def isatty(self) -> bool:
        return True


class Screen(io.StringIO):
    """Standard error that sets an event when it is flushed."""

    def __init__(self) -> None:
        super().__init__()
        self.written = Event()

    def flush(self) -> None:
        self.written.set()


def session_with(stdin: io.StringIO, *, yes: bool = False) -> Session:
    def never() -> ManagementApi:
        raise AssertionError

    return Session(
        arguments=argparse.Namespace(yes=yes, output="table"),
        connect=never,
        now=datetime(2026, 11, 22, tzinfo=UTC),
        stdin=stdin,
        stdout=io.StringIO(),
        stderr=Screen(),
    )


@pytest.mark.parametrize("answer", ["y\n", "YES\n"])
def test_operator_confirms(answer: str) -> None:
    session = session_with(Terminal(answer))
    session.confirm("The node ends.")
    assert "The node ends.\nContinue? [y/N] " in session.stderr.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("answer", ["", "\n", "n\n", "yes please\n"])
def test_any_other_answer_is_no(answer: str) -> None:
    with pytest.raises(Rejected, match="nothing was changed"):
        session_with(Terminal(answer)).confirm("The node ends.")


def test_script_needs_the_flag() -> None:
    with pytest.raises(Rejected, match="not confirmed") as error:
        session_with(io.StringIO("y\n")).confirm("The node ends.")
    assert error.value.hint == "add --yes to confirm"
    session_with(io.StringIO(), yes=True).confirm("The node ends.")


def test_slow_step_shows_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "_PROGRESS_AFTER", 0.01)
    session = session_with(io.StringIO())
    assert isinstance(session.stderr, Screen)
    with session.progress("reading"):
        session.doing("reading: 1 of 2")
        assert session.stderr.written.wait(30)
    assert session.stderr.getvalue().startswith("reading")


def test_fast_step_shows_nothing() -> None:
    session = session_with(io.StringIO())
    with session.progress("reading"):
        pass
    assert isinstance(session.stderr, Screen)
    assert session.stderr.getvalue() == ""


def test_watch_prints_only_what_is_new_or_has_changed() -> None:
    session = session_with(io.StringIO())
    columns = (Column("NODE", field("node")), Column("STATE", field("state")))
    first = [{"node": "a", "state": "Attested"}, {"node": "b", "state": "Attested"}]
    second = [first[0], {"node": "b", "state": "Expired"}, {"node": "c", "state": "Attested"}]
    session.show_list(first, columns)
    for documents in (second, second):
        session.show_list(documents, columns)
    assert isinstance(session.stdout, io.StringIO)
    assert [line.split() for line in session.stdout.getvalue().splitlines()] == [
        ["NODE", "STATE"], ["a", "Attested"], ["b", "Attested"],
        ["b", "Expired"], ["c", "Attested"],
    ]  # fmt: skip
    assert isinstance(session.stderr, Screen)
    assert session.stderr.getvalue() == ""


def test_names_are_printed_one_in_a_line() -> None:
    session = session_with(io.StringIO())
    session.arguments.output = "name"
    session.show_list([{"node": "a"}, {"node": "b\n"}], (), lambda d: f"node/{d['node']}")
    assert isinstance(session.stdout, io.StringIO)
    assert session.stdout.getvalue() == "node/a\nnode/b\\n\n"


def test_clusters_that_could_not_be_read_change_the_exit_status() -> None:
    session = session_with(io.StringIO())
    assert session.warn_unreachable([]) == EXIT_OK
    assert session.warn_unreachable(["team-a/c1: no answer"]) == EXIT_UNDECIDED
    assert isinstance(session.stderr, Screen)
    assert session.stderr.getvalue() == "warning: team-a/c1: no answer\n"
