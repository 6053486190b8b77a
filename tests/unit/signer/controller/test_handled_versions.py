"""A version that this signer replaced or finished is reconciled once, and is then forgotten."""

from dataclasses import replace

import pytest

from signer.controller.workers import OwnWrites
from tests.builders.scenario import Scenario

CSR = replace(Scenario().offer_csr(), resource_version="1")


def test_only_versions_that_were_added_are_handled() -> None:
    handled = OwnWrites()
    handled.add(CSR.name, {"1", "2"})
    assert handled.includes(CSR)
    assert handled.includes(replace(CSR, resource_version="2"))
    assert not handled.includes(replace(CSR, resource_version="3"))
    assert not handled.includes(replace(CSR, name="another"))


def test_versions_stay_while_the_cache_has_one_of_them() -> None:
    """An approval and a certificate replace two versions, and the watch delivers one by one."""
    handled = OwnWrites()
    handled.add(CSR.name, {"1", "2"})
    handled.observe(CSR.name, CSR)
    handled.observe(CSR.name, replace(CSR, resource_version="2"))
    assert handled.includes(CSR)


@pytest.mark.parametrize("change", [None, replace(CSR, resource_version="3")])
def test_versions_are_forgotten_when_the_cache_has_none_of_them(change: object) -> None:
    """Their number stays below that of the CSRs in the cache."""
    handled = OwnWrites()
    handled.add(CSR.name, {"1", "2"})
    handled.observe(CSR.name, change)  # type: ignore[arg-type] # a CSR or none
    assert not handled.includes(CSR)
    assert len(handled) == 0
