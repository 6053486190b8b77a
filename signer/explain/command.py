"""`node-attestation-signer verify`: reads the files, replays the requests, writes the report."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from common.errors import AttestationError
from signer.config import load_policy_file
from signer.explain.manifests import FilesInvalid, kind_of, read_objects
from signer.explain.offline_claims import OfflineClaimStore
from signer.explain.offline_inventory import Dump
from signer.explain.replay import ReplayInputs, replay
from signer.explain.report import as_json, as_text, exit_status
from signer.inventory.caches import cluster_key
from signer.inventory.challenge_keys import keys_from_secret
from signer.inventory.lister import CachedInventory
from signer.kube.csrs import read_csr
from signer.kube.secrets import read_secret
from signer.model import ChallengeKeys, ClusterKey, Csr

_CSR = ("certificates.k8s.io", "CertificateSigningRequest")
_SECRET = ("", "Secret")


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The files that the command line names."""

    requests: Path
    policy: Path
    objects: Sequence[Path]
    challenge_key_secret: Path | None
    cluster: ClusterKey | None
    """`None`: the only Cluster among the objects."""


def explain(files: Files, *, now: datetime, json: bool) -> tuple[str, int]:
    """Replay every request in the file; return the report and the exit status.

    Raises:
        FilesInvalid: a file cannot be used.
        ConfigError: the policies or their trust anchors are invalid.

    """
    csrs = _csrs(files.requests)
    dump = Dump([body for path in files.objects for body in read_objects(path)])
    keys = files.challenge_key_secret
    return explain_requests(
        csrs,
        dump,
        policy=files.policy,
        cluster=_cluster(files.cluster, dump),
        challenge_keys=None if keys is None else _challenge_keys(keys, now),
        now=now,
        json=json,
    )


def explain_requests(  # noqa: PLR0913 - everything that a verdict depends on
    csrs: Sequence[Csr],
    dump: Dump,
    *,
    policy: Path,
    cluster: ClusterKey,
    challenge_keys: ChallengeKeys | None,
    now: datetime,
    json: bool,
) -> tuple[str, int]:
    """Replay requests against these objects; return the report and the exit status.

    Raises as `explain`.
    """
    policy_file = load_policy_file(policy)
    found = dump.clusters.get(cluster_key(cluster))
    inputs = ReplayInputs(
        cluster=cluster,
        labels={} if found is None else found.labels,
        inventory=CachedInventory(dump, dump.workload(cluster)),
        claims=OfflineClaimStore(dump),
        policies=policy_file.policies,
        anchors=policy_file.anchors,
        challenge_keys=challenge_keys,
        now=now,
    )
    explanations = [replay(csr, inputs) for csr in csrs]
    write = as_json if json else as_text
    return write(explanations, dump.object_counts()), exit_status(explanations)


def _csrs(path: Path) -> list[Csr]:
    bodies = [body for body in read_objects(path) if kind_of(body) == _CSR]
    if not bodies:
        raise FilesInvalid(f"{path}: must hold a CertificateSigningRequest")
    try:
        return [read_csr(body) for body in bodies]
    except ValueError as e:
        raise FilesInvalid(f"{path}: a CertificateSigningRequest cannot be read: {e}") from e


def _cluster(key: ClusterKey | None, dump: Dump) -> ClusterKey:
    if key is not None:
        return key
    keys = [cluster.key for cluster in dump.clusters.all()]
    if len(keys) != 1:
        raise FilesInvalid(f"the objects hold {len(keys)} Clusters: name one with --cluster")
    return keys[0]


def _challenge_keys(path: Path, now: datetime) -> ChallengeKeys:
    bodies = [body for body in read_objects(path) if kind_of(body) == _SECRET]
    if len(bodies) != 1:
        raise FilesInvalid(f"{path}: must hold exactly one Secret")
    try:
        return keys_from_secret(read_secret(bodies[0]), now)
    except AttestationError as e:
        raise FilesInvalid(f"{path}: {e.message}") from e
    except ValueError as e:
        raise FilesInvalid(f"{path}: {e}") from e
