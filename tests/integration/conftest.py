"""Control planes for a whole test run. A missing program fails the tests; nothing is skipped."""

import os
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.controlplane import pins, provide
from tests.harness.fleet import Fleet
from tests.harness.machines import Machines
from tests.harness.signer import RUNNING, Signer, serving_all
from tests.harness.tpm import TrustDomain
from tests.integration.relays import Relayed, relays

_LOG_LINES = 40
_SIGNERS = pytest.StashKey[list[Path]]()
"""Directories of the signers that serve several tests."""
_FAILED = pytest.StashKey[bool]()


@pytest.fixture(scope="session")
def assets() -> Path:
    """Return the directory with all programs of the Kubernetes version under test."""
    version = os.environ.get("KUBERNETES_VERSION") or pins.newest()
    return provide.kubernetes(version, provide.ALL)


@pytest.fixture(scope="session")
def fleet(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Run a management cluster and two workload clusters. Each test uses its own Machine names."""
    with Fleet(tmp_path_factory.mktemp("fleet"), assets) as running:
        yield running


@pytest.fixture(scope="session")
def signer(
    fleet: Fleet, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Signer]:
    """Run one signer for both clusters, with the default policy."""
    directory = tmp_path_factory.mktemp("signer")
    pytestconfig.stash.setdefault(_SIGNERS, []).append(directory)
    with serving_all(fleet, directory) as running:
        yield running


@pytest.fixture(scope="module")
def relayed(
    fleet: Fleet, signer: Signer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Relayed]:
    """Send signers through relays. The signer of the other tests is stopped meanwhile."""
    signer.stop()
    with relays(fleet, tmp_path_factory.mktemp("relays")) as running:
        yield running
    signer.start()


@pytest.fixture(scope="session")
def vendor(tmp_path_factory: pytest.TempPathFactory) -> TrustDomain:
    """Make the authority that certifies the endorsement keys of all nodes."""
    return TrustDomain(tmp_path_factory.mktemp("vendor"))


@pytest.fixture(autouse=True)
def no_signer_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Kill the signers that a failed test left running: they would answer the next tests' nodes."""
    before = frozenset(RUNNING)
    yield
    if request.node.stash.get(_FAILED, default=False):
        for signer in RUNNING - before:
            signer.kill()


@pytest.fixture
def machines(fleet: Fleet, vendor: TrustDomain, tmp_path: Path) -> Iterator[Machines]:
    """Make machines, each with its own TPM. They are removed at the end of the test."""
    with ExitStack() as stack:
        yield Machines(fleet, vendor, tmp_path, stack)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the ends of the signers' logs to the report of a failed test."""
    report = yield
    if report.failed:
        item.stash[_FAILED] = True
        logs = [path / "signer.log" for path in item.config.stash.get(_SIGNERS, [])]
        used = item.funcargs if isinstance(item, pytest.Function) else {}
        logs += [value.log for value in used.values() if isinstance(value, Signer)]
        own = used.get("tmp_path")
        logs += sorted(own.rglob("signer.log")) if isinstance(own, Path) else []
        for log in filter(Path.exists, dict.fromkeys(logs)):
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            report.sections.append((f"end of {log}", "\n".join(lines[-_LOG_LINES:])))
    return report
