"""Rules for every test run: nothing is skipped, nothing hangs, and no property is timed.

A skipped test proves nothing and looks green, so skips and expected failures count as failures:
what a test needs is brought by `make setup` and `make controlplane`, on every machine.
"""

import gc
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A machine that is busy with other things is no counterexample
# A commit that passed once passes again: it runs the same examples. The profile "search" and
# `make fuzz` look for new ones
settings.register_profile(
    "untimed",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("untimed")
settings.register_profile("search", settings.get_profile("untimed"), derandomize=False)
# For `make check`: `make test` runs the same properties with more examples, `make fuzz` with many.
settings.register_profile("quick", settings.get_profile("untimed"), max_examples=25)

# A shell starts programs in the background with SIGINT ignored, and the programs that tests start
# would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

TIMEOUT_SECONDS = {
    "model": 600,
    "packaging": 900,
    "release": 900,
    "integration": 300,
    "systemd": 600,
    "e2e": 600,
    "bench": 900,
    "imaging": 900,
    "site": 600,
    "upgrade": 600,
}
"""By directory, for the kinds of tests that take their time; the others live with the default."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give slow kinds of tests their own time limit, unless a test has set one itself."""
    root = Path(__file__).parent
    for item in items:
        kind = item.path.relative_to(root).parts[0] if item.path.is_relative_to(root) else ""
        if kind in TIMEOUT_SECONDS and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS[kind]))


def pytest_collection_finish() -> None:
    """Exclude the thousands of collected tests from garbage collection, which they slow down."""
    gc.collect()
    gc.freeze()


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip or an expected failure into a failure that says so."""
    if report.outcome == "skipped":
        report.outcome = "failed"
        report.longrepr = f"skipped or expected to fail, which counts as failed: {report.longrepr}"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Apply the rule to what tests and fixtures skip."""
    report = yield
    _fail_if_skipped(report)
    # Without this attribute it is an ordinary failure to everything that reads the report.
    vars(report).pop("wasxfail", None)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Apply the rule to modules that skip themselves as a whole."""
    report = yield
    _fail_if_skipped(report)
    return report
