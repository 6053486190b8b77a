"""Platforms are found by the names of their entry points, and read their credentials files."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from signer.errors import PlatformQueryFailed
from signer.platforms.aws import Aws
from signer.platforms.azure import Azure
from signer.platforms.gce import Gce
from signer.platforms.registry import platform_of
from signer.platforms.vsphere import Vsphere
from signer.policy.policy import PlatformRules
from tests.fakes.platforms import RULES, with_file

UUID = "42180cbd-9d43-7b1c-6a0c-0f8a7c5a1e01"
VM = f"/subscriptions/{UUID}/resourceGroups/a/providers/Microsoft.Compute/virtualMachines/b"


@pytest.mark.parametrize(
    ("name", "platform"), [("aws", Aws), ("azure", Azure), ("gce", Gce), ("vsphere", Vsphere)]
)
def test_policy_names_the_platform_by_its_entry_point(name: str, platform: type) -> None:
    assert isinstance(platform_of(replace(RULES, type=name)), platform)


def test_platform_that_is_not_installed_is_reported() -> None:
    with pytest.raises(PlatformQueryFailed) as caught:
        platform_of(replace(RULES, type="mainframe"))
    assert "platform mainframe is not installed; installed are: aws" in caught.value.detail


QUERIES: dict[str, Callable[[PlatformRules], object]] = {
    "aws": lambda rules: Aws(rules).endorsement_keys("aws:///eu-central-1a/i-0123456789abcdef0"),
    "azure": lambda rules: Azure(rules).vm_id(f"azure://{VM}"),
    "gce": lambda rules: Gce(rules).endorsement_keys("gce://team-a-prod/europe-west3-a/node-1"),
    "vsphere": lambda rules: Vsphere(rules).endorsement_keys(f"vsphere://{UUID}"),
}


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_missing_credentials_file_is_reported(
    query: Callable[[PlatformRules], object], tmp_path: Path
) -> None:
    with pytest.raises(PlatformQueryFailed) as caught:
        query(with_file(tmp_path / "missing"))
    assert "No such file" in caught.value.detail
