"""Run every parser with almost valid inputs, within limits, and with all earlier findings.

`make fuzz` runs the same targets for longer, guided by coverage.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.fuzz.mutations import Form, mutate
from tests.fuzz.target import FINDINGS, Target
from tests.fuzz.targets import TARGETS

EXAMPLES = settings().max_examples * 6 // 10
"""Fewer than the profile's: there are many targets, and `make fuzz` runs them for longer."""
CASES = [(target, path) for target in TARGETS.values() for path in target.findings()]


@cache
def seeds(target: Target) -> Sequence[bytes]:
    """Make a target's seeds once: some of them need new keys."""
    return target.seeds()


@pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))
def test_seeds_are_accepted(target: Target) -> None:
    """Otherwise the parser would refuse their mutations at its first check."""
    assert [target.feed(seed) for seed in seeds(target)] == [True] * len(seeds(target))


@pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(random=st.randoms(use_true_random=False))
def test_almost_valid_inputs_are_accepted_or_refused(target: Target, random: Random) -> None:
    """The parser raises only documented errors."""
    target.feed(mutate(target.form, random.choice(seeds(target)), random))


@pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))
@settings(max_examples=EXAMPLES // 4, deadline=None)
@given(data=st.binary(max_size=256))
@example(data=b"")
def test_any_bytes_are_accepted_or_refused(target: Target, data: bytes) -> None:
    target.feed(data)


@pytest.mark.parametrize(
    ("target", "path"), CASES, ids=[f"{t.name}-{path.name}" for t, path in CASES]
)
def test_earlier_findings_cause_no_unexpected_error(target: Target, path: Path) -> None:
    target.feed(path.read_bytes())


def test_each_finding_belongs_to_a_target() -> None:
    """A finding without a target would never be run again."""
    assert {path.name for path in FINDINGS.iterdir() if path.is_dir()} <= TARGETS.keys()


@pytest.mark.parametrize("form", Form)
def test_mutations_change_the_input(form: Form) -> None:
    """Most changes also keep the format, so not all are changes of bytes."""
    target = next(target for target in TARGETS.values() if target.form is form)
    seed = seeds(target)[0]
    changed = {mutate(form, seed, Random(number)) for number in range(50)}
    assert len(changed - {seed}) > 40
