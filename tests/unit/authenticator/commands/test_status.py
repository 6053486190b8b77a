"""status: its report on a state directory."""

import errno
import os
from io import StringIO
from pathlib import Path
from typing import NoReturn, cast

import pytest

from authenticator.checks import kubelet_process
from authenticator.commands import kubelet_unit, status
from authenticator.commands.run import CommandContext
from authenticator.config.command_line import Arguments
from authenticator.errors import RequestDenied, StateDirectoryUnwritable
from authenticator.state.cooldown import start
from authenticator.state.directory import StateDirectory
from authenticator.state.run_record import RunRecorder
from authenticator.state.store import FileStore
from tests.builders import credentials
from tests.builders.pending_exchange import PENDING
from tests.fakes.clock import FakeClock


def test_status_shows_certificates_exchange_cooldown_and_runs(tmp_path: Path) -> None:
    clock = FakeClock()
    with StateDirectory(tmp_path / "state") as directory:
        store = FileStore(directory, clock)
        assert (
            status.format_text(status.collect(store, None, clock, is_presented=True))
            == "certificate  none\n"
        )
        store.save_credential(credentials.make(int(clock.now()) - credentials.DAY))
        store.save_pending(PENDING)
        error = RequestDenied("denied: EndorsementKeyMismatch", detail="EndorsementKeyMismatch")
        start(error, store, clock, "digest", 0.0)
        run = RunRecorder(clock, "needed")
        with run.phase("offer"):
            clock.pass_time(0.25)
        store.append_run_record(run.record("failed", error))
        store.append_run_record(RunRecorder(clock, "needed").record("done"))
        serving = credentials.make(int(clock.now()) - 2 * credentials.DAY)
        shown = status.format_text(status.collect(store, serving, clock, is_presented=True))
    for words in (
        "node         worker-1",
        "certificate  fresh, until",
        "serving      fresh, until",
        "exchange     in stage offer, started",
        "2 s until the next attempt, after RequestDenied: denied: EndorsementKeyMismatch",
        "last run",
        "last failure",
        "0.250 s  offer",
    ):
        assert words in shown
    assert "key" not in shown.lower().replace("endorsementkey", "")


def test_exchange_of_another_boot_is_not_shown(tmp_path: Path) -> None:
    clock = FakeClock()
    with StateDirectory(tmp_path / "state") as directory:
        store = FileStore(directory, clock)
        store.save_pending(PENDING)
        clock.reboot()
        assert status.collect(store, None, clock, is_presented=True)["exchange"] is None


@pytest.mark.parametrize("hidden", ["serving", "state"])
def test_status_for_a_user_without_rights_names_the_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hidden: str
) -> None:
    """It was a traceback: nothing in a private directory can be looked up."""
    state, is_dir = tmp_path / "state", Path.is_dir
    state.mkdir()

    def forbid(*_: object, **__: object) -> NoReturn:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "open", forbid)
    for look_up in ("is_dir", "exists"):
        monkeypatch.setattr(Path, look_up, lambda p: forbid() if p.name == hidden else is_dir(p))
    arguments = Arguments(command="status", flags={"stateDir": str(state)})
    context = CommandContext(arguments=arguments, exec_info=None, program="", out=StringIO())
    with pytest.raises(StateDirectoryUnwritable, match="Permission denied"):
        status.run(context)


@pytest.mark.parametrize(
    ("name", "has_left", "says_so"),
    [("state", False, True), ("serving", False, False), ("state", True, False)],
)
def test_older_certificate_is_one_for_clients_of_a_node_that_has_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, *, has_left: bool, says_so: bool
) -> None:
    """A kubelet never asks for its serving certificate, so it seemed to hold an older one."""
    clock, link = FakeClock(), tmp_path / "link"
    with StateDirectory(tmp_path / name) as directory:
        FileStore(directory, clock).save_credential(credentials.make(int(clock.now())))
    if has_left:
        link.symlink_to(os.devnull)
    monkeypatch.setattr(kubelet_unit, "HIDING_LINK", link)
    monkeypatch.setattr(kubelet_process, "find_older_holder", lambda *_: 42)
    arguments = Arguments(command="status", flags={"stateDir": str(tmp_path / name)})
    context = CommandContext(arguments=arguments, exec_info=None, program="", out=StringIO())
    assert status.run(context) == 0
    shown = cast("StringIO", context.out).getvalue()
    assert ("the kubelet (process 42) has not asked for" in shown) == says_so
