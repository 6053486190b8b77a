"""What is shipped beside code under Apache-2.0 may be shipped."""

import re
from importlib.metadata import distribution

import pytest

from builders.version import PROJECT

REDISTRIBUTABLE = {
    *("Apache-2.0", "Apache 2.0", "Apache License, Version 2.0", "Apache Software License"),
    *("BSD", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "MIT-0", "MPL-2.0", "PSF-2.0"),
}
"""Licenses that allow to ship a package beside code under Apache-2.0, as packages spell them."""


@pytest.mark.parametrize("lock", ["node", "signer", "operator"])
def test_licenses_of_all_locked_packages_allow_to_ship_them(lock: str) -> None:
    text = (PROJECT / f"requirements/{lock}.txt").read_text(encoding="utf-8")
    for name in re.findall(r"^([a-z0-9.-]+)==", text, re.MULTILINE):
        metadata = distribution(name).metadata
        found = metadata["License-Expression"] or metadata["License"] or "no license"
        assert set(re.split(" AND | OR ", found)) <= REDISTRIBUTABLE, name
