"""`node-attestation-signer explain`: reads the files, replays the requests, writes the report."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from common.errors import AttestationError
from signer.explain.manifests import FilesInvalid, kind_of, read_objects
from signer.explain.offline_claims import OfflineClaimStore
from signer.explain.offline_inventory import OfflineObjects
from signer.explain.replay import ReplayInputs, replay
from signer.explain.report import as_json, as_text, exit_status
from signer.inventory.cached_inventory import CachedInventory
from signer.inventory.replica_records.challenge_keys import keys_from_secret
from signer.kinds.cluster import ClusterKey
from signer.kinds.csr import Csr
from signer.kube.csrs import read_csr
from signer.kube.secrets import read_secret
from signer.policy.policy import Policy
from signer.seams import ChallengeKeys
from signer.settings.trust_bundles import TrustBundleInvalid, load_trust_bundle
from signer.verify.x509.trust_anchors import TrustAnchors

_CSR = ("certificates.k8s.io", "CertificateSigningRequest")
_SECRET = ("", "Secret")


def explain(  # noqa: PLR0913 - the files that the command line names
    *,
    requests: Path,
    objects: Sequence[Path],
    challenge_key_secret: Path | None,
    cluster: ClusterKey | None,
    now: datetime,
    json: bool,
) -> tuple[str, int]:
    """Replay every request in a file; return the report and the exit status.

    Without `cluster`, the objects must hold one Cluster. Raises `FilesInvalid`.
    """
    csrs = _csrs(requests)
    found = OfflineObjects([body for path in objects for body in read_objects(path)])
    key = _cluster(cluster, found)
    secret = challenge_key_secret
    return explain_requests(
        csrs,
        found,
        cluster=key,
        challenge_keys=None if secret is None else _challenge_keys(secret, now),
        now=now,
        json=json,
    )


def explain_requests(  # noqa: PLR0913 - everything that a verdict depends on
    csrs: Sequence[Csr],
    objects: OfflineObjects,
    *,
    cluster: ClusterKey,
    challenge_keys: ChallengeKeys | None,
    now: datetime,
    json: bool,
) -> tuple[str, int]:
    """Replay requests against these objects; return the report and the exit status.

    The policies name files with authorities, which are read from this machine. Raises
    `FilesInvalid`.
    """
    found = objects.clusters.get(str(cluster))
    labels = {} if found is None else found.labels
    selecting = objects.policies.selecting(cluster, labels)
    inputs = ReplayInputs(
        cluster=cluster,
        labels=labels,
        inventory=CachedInventory(objects, objects.workload(cluster)),
        claims=OfflineClaimStore(objects),
        policies=objects.policies,
        anchors={p.name: _anchors(p) for p in selecting if isinstance(p, Policy)},
        challenge_keys=challenge_keys,
        now=now,
    )
    explanations = [replay(csr, inputs) for csr in csrs]
    write = as_json if json else as_text
    return write(explanations, objects.object_counts()), exit_status(explanations)


def _anchors(policy: Policy) -> TrustAnchors:
    try:
        return load_trust_bundle(policy)
    except TrustBundleInvalid as error:
        raise FilesInvalid(
            f"policy {policy.name}: {error}: the files of the signer must be at the same paths here"
        ) from error


def _csrs(path: Path) -> list[Csr]:
    bodies = [body for body in read_objects(path) if kind_of(body) == _CSR]
    if not bodies:
        raise FilesInvalid(f"{path}: must hold a CertificateSigningRequest")
    try:
        return [read_csr(body) for body in bodies]
    except ValueError as error:
        raise FilesInvalid(
            f"{path}: a CertificateSigningRequest cannot be read: {error}"
        ) from error


def _cluster(key: ClusterKey | None, objects: OfflineObjects) -> ClusterKey:
    if key is not None:
        return key
    keys = [cluster.key for cluster in objects.clusters.all()]
    if len(keys) != 1:
        raise FilesInvalid(f"the objects hold {len(keys)} Clusters: name one with --cluster")
    return keys[0]


def _challenge_keys(path: Path, now: datetime) -> ChallengeKeys:
    bodies = [body for body in read_objects(path) if kind_of(body) == _SECRET]
    if len(bodies) != 1:
        raise FilesInvalid(f"{path}: must hold exactly one Secret")
    try:
        return keys_from_secret(read_secret(bodies[0]), now)
    except AttestationError as error:
        raise FilesInvalid(f"{path}: {error.message}") from error
    except ValueError as error:
        raise FilesInvalid(f"{path}: {error}") from error
