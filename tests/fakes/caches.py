"""The caches of a management cluster, which a test fills."""

from signer.inventory.caches import ManagementCaches
from signer.inventory.cluster_api.references import InfrastructureObject, Reference


class FakeCaches(ManagementCaches):
    """Caches without infrastructure objects."""

    def infrastructure(self, reference: Reference) -> InfrastructureObject | None:
        """Fail: the test gives no reference."""
        raise AssertionError(reference)
