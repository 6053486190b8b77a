"""The control planes, machines and alerts of the day two."""

from tests.packaging.signer.conftest import assets, fleet, machines, rules, vendor

__all__ = ["assets", "fleet", "machines", "rules", "vendor"]
