"""A whole node in memory: every seam of `enrol` with its fake, and calls that a kubelet makes."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from authenticator.config.exec_info import ExecInfo
from authenticator.config.invocation import Invocation
from authenticator.config.settings import resolve
from authenticator.enroll.enroll import EnrollDependencies, Trigger, obtain_credential
from authenticator.errors import BootstrapCredentialUnusable, ProviderUnavailable
from authenticator.model import ApiCredential, CsrApi, Deadline, Server, Token
from authenticator.providers.provider import Identity
from authenticator.state.credential import Credential
from authenticator.state.run_record import RunRecorder
from authenticator.tpm.device import Tpm
from tests.fakes.clock import FakeClock
from tests.fakes.csr_api import FakeCluster
from tests.fakes.store import FakeStore
from tests.fakes.tpm import FakeTpm

BUDGET_SECONDS = 60
NODE_NAME = "worker-1.example"
_T = TypeVar("_T")


class SimulatedCrash(BaseException):
    """The process is gone; nothing in the product may catch this."""


@dataclass
class CrashInjector:
    """Kills at the n-th moment: every call of a seam has one before and one after it."""

    moment: int | None = None
    seen: int = 0

    def tick(self) -> None:
        """Count a moment."""
        self.seen += 1
        if self.seen == self.moment:
            raise SimulatedCrash

    def watch(self, seam: _T) -> _T:
        """Return the seam with its calls counted."""
        return cast("_T", _Watched(seam, self))


class _Watched:
    def __init__(self, seam: Any, executioner: CrashInjector) -> None:  # noqa: ANN401
        self._seam = seam
        self._executioner = executioner

    def __getattr__(self, name: str) -> object:
        found = getattr(self._seam, name)
        if not callable(found):
            return found

        def call(*arguments: object, **named: object) -> object:
            self._executioner.tick()
            result = found(*arguments, **named)
            self._executioner.tick()
            return result

        return call


@dataclass
class FakeNode:
    """A node, its cluster, and everything in between."""

    clock: FakeClock = field(default_factory=FakeClock)
    store: FakeStore = field(default_factory=FakeStore)
    tpm: FakeTpm = field(default_factory=FakeTpm)
    bootstrap: ApiCredential | None = field(
        default_factory=lambda: Token(token="abcdef.0123456789abcdef")
    )
    settings: dict[str, object] = field(default_factory=dict)
    exec_info: bytes = b'{"the":"call"}\n'
    executioner: CrashInjector = field(default_factory=CrashInjector)
    log: bytes | None = None
    identity: Identity | None = None
    """What the provider tells; None: it is away."""
    providers_asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cluster = FakeCluster(self.clock)
        self.report = RunRecorder(self.clock, "test")
        self._names = (f"{n:032x}" for n in itertools.count(1))

    def call(self) -> Invocation:
        """Return the call that the kubelet makes."""
        server = Server(
            url="https://api.example",
            ca=self.cluster.authority(),
            tls_server_name=None,
            proxy=None,
        )
        info = ExecInfo(
            raw=self.exec_info,
            api_version="client.authentication.k8s.io/v1",
            server=server,
            settings={},
        )
        given = {"nodeName": NODE_NAME, "providerID": "test:///1", **self.settings}
        given = {key: value for key, value in given.items() if value is not None}
        return Invocation(
            exec_info=info,
            settings=resolve(given, {}, "unused"),
            arguments=("--timeout-seconds", "60"),
        )

    def world(self) -> EnrollDependencies:
        """Return the seams."""
        watch: Callable[[Any], Any] = self.executioner.watch

        def connect(server: Server, requester: ApiCredential, deadline: Deadline) -> CsrApi:
            assert server.url
            deadline.clamp(1)
            api: CsrApi = watch(self.cluster.connect(requester))
            return api

        @contextlib.contextmanager
        def open_tpm(deadline: Deadline) -> Iterator[Tpm]:
            deadline.clamp(1)
            yield watch(self.tpm)

        return EnrollDependencies(
            clock=self.clock,
            store=watch(self.store),
            connect=connect,
            open_tpm=open_tpm,
            load_bootstrap=self._load_bootstrap,
            query_provider=self._ask_provider,
            event_log=lambda: self.log,
            token_hex=lambda: next(self._names),
            jitter=lambda: 0.5,
            phases=self.report,
        )

    def obtain(
        self, occasion: Trigger = Trigger.REQUIRED, seconds: float = BUDGET_SECONDS
    ) -> Credential:
        """Make one call."""
        return obtain_credential(self.call(), self.world(), Deadline(self.clock, seconds), occasion)

    def _ask_provider(self, setting: str, deadline: Deadline) -> Identity:
        deadline.clamp(1)
        self.providers_asked.append(setting)
        if self.identity is None:
            raise ProviderUnavailable("no answer")
        return self.identity

    def _load_bootstrap(self, path: Path) -> ApiCredential:
        if self.bootstrap is None:
            raise BootstrapCredentialUnusable(f"{path}: No such file or directory")
        return self.bootstrap
