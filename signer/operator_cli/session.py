"""What a command gets: arguments, streams, the time, and the connection to the cluster."""

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from threading import Event, Thread
from typing import Final, TextIO

from signer.operator_cli.errors import EXIT_OK, EXIT_UNDECIDED, Rejected
from signer.operator_cli.management import ManagementApi
from signer.operator_cli.output import Column, Document, printable, render_document, render_list
from signer.operator_cli.snapshot import Selection, Snapshot, take_snapshot

_PROGRESS_AFTER: Final = 2.0
"""Seconds after which a command shows what it waits for, and between two such lines."""
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
    _doing: str = field(default="", init=False)

    @cached_property
    def api(self) -> ManagementApi:
        """Connect to the management cluster."""
        with self.progress("connecting to the management cluster"):
            return self.connect()

    def snapshot(self) -> Snapshot:
        """Read the objects of the selected Clusters; warn of those that cannot be read."""
        cluster = getattr(self.arguments, "cluster", None)
        selection = Selection(namespace=getattr(self.arguments, "namespace", ""), cluster=cluster)
        api = self.api
        with self.progress("reading the objects of the management cluster"):
            snapshot = take_snapshot(api, selection)
        if cluster is not None and not snapshot.clusters:
            raise Rejected(
                f"Cluster {cluster.namespace}/{cluster.name} does not exist",
                hint="run the command `clusters` for their names",
            )
        for problem in snapshot.unreadable:
            self.warn(f"left out: {problem}")
        return snapshot

    def show_list(self, documents: Sequence[Document], columns: Sequence[Column]) -> None:
        """Print documents in the requested format."""
        if not documents and self.arguments.output in {"table", "wide"}:
            self.stderr.write("nothing found\n")
            return
        self.stdout.write(render_list(documents, columns, self.arguments.output))

    def show_document(self, document: Document) -> None:
        """Print one document in the requested format."""
        self.stdout.write(render_document(document, self.arguments.output))

    def warn(self, message: str) -> None:
        """Print a line on stderr."""
        self.stderr.write(f"warning: {printable(message)}\n")

    def warn_unreachable(self, failures: Sequence[str]) -> int:
        """Warn of each workload cluster that could not be read; return the exit status."""
        for failure in failures:
            self.warn(failure)
        return EXIT_UNDECIDED if failures else EXIT_OK

    def confirm(self, consequence: str) -> None:
        """Ask before something that ends a node's service.

        Raises:
            Rejected: the operator declines, or cannot be asked.

        """
        if self.arguments.yes:
            return
        if not self.stdin.isatty():
            raise Rejected(f"not confirmed: {consequence}", hint="add --yes to confirm")
        self.stderr.write(f"{printable(consequence)}\nContinue? [y/N] ")
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
