"""The rule of tests/conftest.py is kept by pytest itself: a skipped test fails the run."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CONFTEST = Path(__file__).parents[1] / "conftest.py"

BODIES = {
    "mark": "import pytest\n@pytest.mark.skip\ndef test(): pass",
    "condition": "import pytest\n@pytest.mark.skipif(True, reason='no')\ndef test(): pass",
    "call": "import pytest\ndef test(): pytest.skip('no')",
    "fixture": "import pytest\n@pytest.fixture\ndef f(): pytest.skip('no')\ndef test(f): pass",
    "expected failure": "import pytest\n@pytest.mark.xfail\ndef test(): assert 0",
    "whole module": "import pytest\npytest.importorskip('nonsense_of_ours')\ndef test(): pass",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_skipping_fails(pytester: pytest.Pytester, body: str) -> None:
    """The run fails for every way to skip a test."""
    pytester.makeconftest(CONFTEST.read_text(encoding="utf-8"))
    pytester.makepyfile(body)
    outcomes = pytester.runpytest("-p", "no:randomly").parseoutcomes()
    assert outcomes.get("failed", 0) + outcomes.get("errors", 0) == 1
    assert "skipped" not in outcomes
    assert "xfailed" not in outcomes


def test_running_passes(pytester: pytest.Pytester) -> None:
    """The rule does not affect a test that runs."""
    pytester.makeconftest(CONFTEST.read_text(encoding="utf-8"))
    pytester.makepyfile("def test(): pass")
    pytester.runpytest("-p", "no:randomly").assert_outcomes(passed=1)
