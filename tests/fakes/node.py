"""A whole node in memory: fakes of all `EnrollDependencies`, and the calls of the kubelet."""

import base64
import contextlib
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

from authenticator.config.exec_info import parse_exec_info
from authenticator.config.invocation import Invocation
from authenticator.config.settings import ENTRY_KUBECONFIG, resolve
from authenticator.enroll.enroll import Trigger, obtain_credential
from authenticator.enroll.enroll_dependencies import EnrollDependencies
from authenticator.errors import BootstrapCredentialUnusable, ProviderUnavailable
from authenticator.model import ApiCredential, CsrApi, Deadline, Server, Token
from authenticator.providers.provider import Identity
from authenticator.state.credential import Credential
from authenticator.state.run_record import RunRecorder
from authenticator.tpm.device import Tpm
from tests.fakes.clock import FakeClock
from tests.fakes.csr_api import FakeWorkload
from tests.fakes.store import FakeStore
from tests.fakes.tpm import FakeTpm

BUDGET_SECONDS = 60
NODE_NAME = "worker-1.example"
_T = TypeVar("_T")


class SimulatedCrash(BaseException):
    """The process was killed. No code of the product may catch this."""


@dataclass
class CrashInjector:
    """Raises SimulatedCrash at the n-th moment. Each call has a moment before and one after it."""

    moment: int | None = None
    seen: int = 0

    def tick(self) -> None:
        """Count a moment; raise SimulatedCrash if it is the n-th."""
        self.seen += 1
        if self.seen == self.moment:
            raise SimulatedCrash

    def watch(self, interface: _T) -> _T:
        """Wrap an object so that the moments of its calls are counted."""
        return cast("_T", _Watched(interface, self))


class _Watched:
    def __init__(self, interface: Any, injector: CrashInjector) -> None:  # noqa: ANN401
        self._interface = interface
        self._injector = injector

    def __getattr__(self, name: str) -> object:
        attribute = getattr(self._interface, name)
        if not callable(attribute):
            return attribute

        def call(*arguments: object, **named: object) -> object:
            self._injector.tick()
            result = attribute(*arguments, **named)
            self._injector.tick()
            return result

        return call


@dataclass
class FakeNode:
    """A node, its kubeconfig, and its cluster."""

    clock: FakeClock = field(default_factory=FakeClock)
    store: FakeStore = field(default_factory=FakeStore)
    tpm: FakeTpm = field(default_factory=FakeTpm)
    bootstrap: ApiCredential | None = field(
        default_factory=lambda: Token(token="abcdef.0123456789abcdef")
    )
    entry: ApiCredential | None = None
    """The credential of the entry kubeconfig."""
    settings: dict[str, object] = field(default_factory=dict)
    hostname: str = "unused"
    url: str = "https://api.example"
    ca: str | None = None
    """CA of the kubeconfig; None: the cluster's."""
    crash_injector: CrashInjector = field(default_factory=CrashInjector)
    log: bytes | None = None
    pcr_signatures: bytes | None = None
    identity: Identity | None = None
    """The provider's answer; None: it is unavailable."""
    queried_providers: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cluster = FakeWorkload(self.clock)
        self.report = RunRecorder(self.clock, "test")
        self.cluster_ca = self.cluster.authority()
        self._names = (f"{n:032x}" for n in itertools.count(1))

    @property
    def cached(self) -> Credential:
        """Return the stored credential of a node that has one."""
        assert self.store.credential is not None
        return self.store.credential

    def exec_info(self) -> bytes:
        """Return KUBERNETES_EXEC_INFO of the kubelet's call."""
        ca = self.cluster_ca if self.ca is None else self.ca
        settings = {"nodeName": NODE_NAME, "providerID": "test:///1", **self.settings}
        cluster = {
            "server": self.url,
            "certificate-authority-data": base64.b64encode(ca.encode()).decode(),
            "config": {key: value for key, value in settings.items() if value is not None},
        }
        document = {
            "kind": "ExecCredential",
            "apiVersion": "client.authentication.k8s.io/v1",
            "spec": {"cluster": cluster, "interactive": False},
        }
        return json.dumps(document).encode()

    def call(self) -> Invocation:
        info = parse_exec_info(self.exec_info())
        return Invocation(
            exec_info=info,
            settings=resolve(info.settings, {}, self.hostname),
            arguments=("--timeout-seconds", "60"),
        )

    def deps(self) -> EnrollDependencies:
        """Return the fakes as dependencies."""
        watch: Callable[[Any], Any] = self.crash_injector.watch

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
            query_provider=self._query_provider,
            event_log=lambda: self.log,
            pcr_signatures=lambda _: self.pcr_signatures,
            token_hex=lambda: next(self._names),
            jitter=lambda: 0.5,
            phases=self.report,
        )

    def obtain(
        self, trigger: Trigger = Trigger.RENEWAL_DUE, seconds: float = BUDGET_SECONDS
    ) -> Credential:
        """Obtain a credential as one call does."""
        return obtain_credential(self.call(), self.deps(), Deadline(self.clock, seconds), trigger)

    def _query_provider(self, setting: str, deadline: Deadline) -> Identity:
        deadline.clamp(1)
        self.queried_providers.append(setting)
        if self.identity is None:
            raise ProviderUnavailable("no answer")
        return self.identity

    def _load_bootstrap(self, path: Path) -> ApiCredential:
        credential = self.entry if path.name == ENTRY_KUBECONFIG else self.bootstrap
        if credential is None:
            raise BootstrapCredentialUnusable(f"{path}: No such file or directory")
        return credential
