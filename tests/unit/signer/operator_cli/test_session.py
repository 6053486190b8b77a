"""Confirmation and progress."""

import io
from threading import Event

import pytest

from signer.operator_cli import session as session_module
from signer.operator_cli.errors import EXIT_OK, EXIT_UNDECIDED, Rejected
from signer.operator_cli.output import Column, field
from tests.fakes.cluster import FakeCluster
from tests.fakes.management_api import Console


class Screen(io.StringIO):
    """Standard error that sets an event when it is flushed."""

    def __init__(self) -> None:
        super().__init__()
        self.written = Event()

    def flush(self) -> None:
        self.written.set()


@pytest.mark.parametrize("answer", ["y\n", "YES\n"])
def test_operator_confirms(answer: str) -> None:
    console = Console(FakeCluster(), answer=answer)
    console.session().confirm("The node ends.")
    assert console.complaint == "The node ends.\nContinue? [y/N] "


@pytest.mark.parametrize("answer", [" ", "\n", "n\n", "yes please\n"])
def test_any_other_answer_is_no(answer: str) -> None:
    with pytest.raises(Rejected, match="nothing was changed"):
        Console(FakeCluster(), answer=answer).session().confirm("The node ends.")


def test_script_needs_the_flag() -> None:
    with pytest.raises(Rejected, match="not confirmed") as error:
        Console(FakeCluster()).session().confirm("The node ends.")
    assert error.value.hint == "add --yes to confirm"
    Console(FakeCluster(), {"yes": True}).session().confirm("The node ends.")


def test_slow_step_shows_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "_PROGRESS_AFTER", 0.01)
    screen = Screen()
    session = Console(FakeCluster(), stderr=screen).session()
    with session.progress("reading"):
        session.doing("reading: 1 of 2")
        assert screen.written.wait(30)
    assert screen.getvalue().startswith("reading")


def test_fast_step_shows_nothing() -> None:
    console = Console(FakeCluster())
    with console.session().progress("reading"):
        pass
    assert console.complaint == ""


def test_watch_prints_only_what_is_new_or_has_changed() -> None:
    console = Console(FakeCluster())
    session = console.session()
    columns = (Column("NODE", field("node")), Column("STATE", field("state")))
    first = [{"node": "a", "state": "Attested"}, {"node": "b", "state": "Attested"}]
    second = [first[0], {"node": "b", "state": "Expired"}, {"node": "c", "state": "Attested"}]
    for documents in (first, second, second):
        session.show_list(documents, columns)
    assert [line.split() for line in console.output.splitlines()] == [
        ["NODE", "STATE"], ["a", "Attested"], ["b", "Attested"],
        ["b", "Expired"], ["c", "Attested"],
    ]  # fmt: skip
    assert console.complaint == ""


def test_names_are_printed_one_in_a_line() -> None:
    console = Console(FakeCluster(), {"output": "name"})
    documents = [{"node": "a"}, {"node": "b\n"}]
    console.session().show_list(documents, (), lambda d: f"node/{d['node']}")
    assert console.output == "node/a\nnode/b\\n\n"


def test_clusters_that_could_not_be_read_change_the_exit_status() -> None:
    console = Console(FakeCluster())
    assert console.session().warn_unreachable([]) == EXIT_OK
    assert console.session().warn_unreachable(["team-a/c1: no answer"]) == EXIT_UNDECIDED
    assert console.complaint == "warning: team-a/c1: no answer\n"
