"""What a command gets: arguments, streams, the time, and the connection to the cluster."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from threading import Event, Thread
from typing import Final, TextIO

from signer.kube.unreadable import Unreadable
from signer.operator_cli.errors import EXIT_OK, EXIT_UNDECIDED, CommandError, Rejected
from signer.operator_cli.management.api import ManagementApi
from signer.operator_cli.management.snapshot import Selection, Snapshot, take_snapshot
from signer.operator_cli.output import Column, Document, printable, render_document, render_list

_PROGRESS_AFTER: Final = 2.0
"""Seconds after which a command shows what it waits for, and between two such lines."""
_NAMED: Final = 3
"""How many written objects an interrupted command names."""
_YES: Final = frozenset({"y", "yes"})


@dataclass
class Session:
    """One call of the program."""

    arguments: argparse.Namespace
    connect: Callable[[], ManagementApi]
    now: datetime
    stdin: TextIO
    stdout: TextIO
    stderr: TextIO
    is_first_round: bool = field(default=True, init=False)
    """Whether the command runs for the first time; `--watch` repeats it."""
    _doing: str = field(default="", init=False)
    _shown: dict[tuple[str, ...], Sequence[Document]] = field(default_factory=dict, init=False)
    """What each list had when it was printed last, by the headers of its columns."""

    @cached_property
    def api(self) -> ManagementApi:
        """Connect to the management cluster."""
        with self.progress("connecting to the management cluster"):
            api = self.connect()
        if self.is_dry_run:
            api.dry_run = True
        return api

    @property
    def is_dry_run(self) -> bool:
        """Return whether the API server only checks what the command would write."""
        return getattr(self.arguments, "dry_run", "none") == "server"

    def interruption(self) -> str:
        """Return, as a phrase, what the command has written, before it was interrupted."""
        api: ManagementApi | None = vars(self).get("api")
        written = [] if api is None else api.written
        parts = [f"written: {', '.join(written[-_NAMED:])}"] if written else []
        if len(written) > _NAMED:
            parts.append(f"and {len(written) - _NAMED} objects before")
        if api is not None and api.in_doubt:
            parts.append(f"perhaps written: {api.in_doubt}")
        return "; ".join(parts) or "nothing was written"

    def snapshot(self) -> Snapshot:
        """Read the objects of the selected Clusters; warn of those that cannot be read."""
        cluster = getattr(self.arguments, "cluster", None)
        selection = Selection(namespace=getattr(self.arguments, "namespace", ""), cluster=cluster)
        api = self.api
        with self.progress("reading the objects of the management cluster"):
            snapshot = take_snapshot(api, selection)
        if cluster is not None and not snapshot.clusters:
            raise Rejected(
                f"Cluster {cluster} does not exist",
                hint="run the command `clusters` for their names",
            )
        self.warn_left_out(snapshot.unreadable)
        return snapshot

    def show_list(
        self,
        documents: Sequence[Document],
        columns: Sequence[Column],
        name: Callable[[Document], str] = str,
    ) -> Sequence[Document]:
        """Print documents in the requested format, and return those that were printed.

        With `--watch`, the second and each later call for these columns prints only what the one
        before did not have. `name` returns what `-o name` prints of a document.
        """
        output, headers = self.arguments.output, tuple(column.header for column in columns)
        before = self._shown.get(headers)
        self._shown[headers] = documents
        if before is not None:
            documents = [document for document in documents if document not in before]
        if output == "name":
            self.stdout.writelines(f"{printable(name(document))}\n" for document in documents)
        elif documents or (output in {"json", "yaml"} and before is None):
            text = render_list(documents, columns, output)
            is_table = output in {"table", "wide"}
            self.stdout.write(text.partition("\n")[2] if is_table and before is not None else text)
        elif before is None:
            self.stderr.write("nothing found\n")
        self.stdout.flush()
        return documents

    def show_document(self, document: Document) -> None:
        """Print one document in the requested format, unless it was printed just before."""
        if self._shown.get(()) != [document]:
            self.stdout.write(render_document(document, self.arguments.output))
            self.stdout.flush()
        self._shown[()] = [document]

    def report(self, line: str) -> None:
        """Print on stdout what was written, or would be without `--dry-run=server`."""
        self.stdout.write(f"{line}{' (server dry run)' if self.is_dry_run else ''}\n")
        self.stdout.flush()

    def show_error(self, program: str, error: CommandError) -> None:
        """Print on stderr why a command did not succeed, and the next step."""
        for line in error.message.splitlines():
            self.stderr.write(f"{program}: {printable(line)}\n")
        if error.hint:
            self.stderr.write(f"next step: {printable(error.hint)}\n")
        self.stderr.flush()

    def warn(self, message: str) -> None:
        """Print a line on stderr."""
        self.stderr.write(f"warning: {printable(message)}\n")

    def warn_left_out(self, objects: Sequence[Unreadable]) -> None:
        """Warn of each object that a command leaves out, since it cannot be read."""
        for each in objects:
            self.warn(f"left out: {each}")

    def warn_unreachable(self, failures: Sequence[str]) -> int:
        """Warn of each workload cluster that could not be read; return the exit status."""
        for failure in failures:
            self.warn(failure)
        return EXIT_UNDECIDED if failures else EXIT_OK

    def confirm(self, consequence: str, *, hint: str = "add --yes to confirm") -> None:
        """Show what a command is going to change, and ask unless `--yes` or a dry run is given.

        `hint` says how a script goes on. Raises `Rejected`: the operator declines, or cannot be
        asked.
        """
        self.stderr.writelines(f"{printable(line)}\n" for line in consequence.splitlines())
        if self.arguments.yes or getattr(self.arguments, "dry_run", "none") != "none":
            return
        if not self.stdin.isatty():
            raise Rejected("not confirmed: nothing was changed", hint=hint)
        self.stderr.write("Continue? [y/N] ")
        self.stderr.flush()
        if self.stdin.readline().strip().lower() not in _YES:
            raise Rejected("not confirmed: nothing was changed")

    def doing(self, what: str) -> None:
        """Set what the next line of `progress` shows."""
        self._doing = what

    @contextmanager
    def progress(self, what: str) -> Iterator[None]:
        """Show on stderr what takes longer than two seconds."""
        self.doing(what)
        done = Event()

        def show() -> None:
            while not done.wait(_PROGRESS_AFTER):
                self.stderr.write(f"{self._doing} ...\n")
                self.stderr.flush()

        thread = Thread(target=show, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
