"""What a management cluster must have after each installation: a version, and users' objects."""

from typing import Final

from builders import image
from tests.harness.client import Object
from tests.harness.controlplane import ApiServer
from tests.packaging.signer.helm import NAMESPACE, RELEASE
from tests.packaging.signer.served import when_served
from tests.release.rehearsal.registry import IMAGE, archive_of
from tests.release.rehearsal.stage import Stage

DEPLOYMENT: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{RELEASE}"
_KEYS: Final = "/apis/attestation.cluster.x-k8s.io/v1alpha1/endorsementkeys"
_KEY: Final[Object] = {
    "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
    "kind": "EndorsementKey",
    "metadata": {"name": "5" * 64},
    "spec": {},
}


def create_key(cluster: ApiServer) -> None:
    """Create an EndorsementKey, as a user of the installed version does."""
    when_served(lambda: cluster.admin.create(_KEYS, _KEY))


def require(stage: Stage, cluster: ApiServer, version: str) -> str:
    """Require that a version with its published image is installed, and the EndorsementKey."""
    deployment = cluster.admin.get(DEPLOYMENT)
    assert deployment["metadata"]["labels"]["app.kubernetes.io/version"] == version
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    published = f"{IMAGE}@{image.read_digest(archive_of(stage, version))}"
    assert container["image"] == published, f"{container['image']} must be {published}"
    keys = when_served(lambda: cluster.admin.list(_KEYS))
    assert [each["metadata"]["name"] for each in keys] == [_KEY["metadata"]["name"]]
    return f"v{version} is installed with {published}, and the EndorsementKey is there"
