"""The management cluster in memory, and the console of a command of operators."""

import io
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from signer.kinds.endorsement_key import ENDORSEMENT_KEYS
from signer.operator_cli.session import Session
from tests.fakes.cluster import FakeCluster
from tests.fakes.cluster_clients import management_api
from tests.fakes.cluster_objects import CAPI, Object


class FakeManagement(FakeCluster):
    """An API server with EndorsementKeys and objects of Cluster API."""

    def put_key(self, name: str, **spec: object) -> None:
        self.put(ENDORSEMENT_KEYS.collection_path(), {"metadata": {"name": name}, "spec": spec})

    def put_capi(self, plural: str, namespace: str, *names: str) -> None:
        """Store objects of Cluster API that only their names are read of."""
        path = f"/apis/{CAPI}/namespaces/{namespace}/{plural}"
        self.put(path, *({"metadata": {"name": name}} for name in names))

    def key(self, name: str) -> Object:
        spec: Object = self.objects[ENDORSEMENT_KEYS.object_path(name)]["spec"]
        return spec


@dataclass
class Console:
    """Streams of a command, and the session that writes to them."""

    management: FakeCluster
    arguments: Mapping[str, object] = field(default_factory=dict)
    answer: str = ""
    """What the operator types; without it, standard input is no terminal."""
    now: datetime = datetime(2026, 11, 22, tzinfo=UTC)
    stdout: io.StringIO = field(default_factory=io.StringIO)
    stderr: io.StringIO = field(default_factory=io.StringIO)

    def session(self) -> Session:
        stdin = _Terminal(self.answer) if self.answer else io.StringIO()
        api = management_api(self.management)
        arguments = Namespace(**{"yes": False, "output": "table", **self.arguments})
        return Session(arguments, lambda: api, self.now, stdin, self.stdout, self.stderr)

    @property
    def output(self) -> str:
        """What is on stdout."""
        return self.stdout.getvalue()

    @property
    def complaint(self) -> str:
        """What is on stderr."""
        return self.stderr.getvalue()


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True
