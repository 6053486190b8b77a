"""Serves the listed Clusters in rounds, on one thread, without state outside Kubernetes objects.

Each round reads everything again. So a signer that was killed at any step continues in its next
round, and the record on the Machine limits what it may still sign.
"""

import logging
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Event
from typing import Final

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from common.errors import ApiServerUnavailable, AttestationError, Denied
from common.names import NODES_GROUP
from common.requests.pkcs10 import Pkcs10
from signer.clusters.kubeconfig_secret import admin_kubeconfig_name, read_connection
from signer.controller.reconcile.authorities import ClusterAuthorities
from signer.errors import PolicyMissing
from signer.insecure.management import InsecureManagement
from signer.insecure.verify import (
    INSECURE_SIGNER,
    parse_first_request,
    verify_cluster,
    verify_first_machine,
)
from signer.issue.authority import CertificateAuthority
from signer.issue.certificate import certificate_not_after
from signer.issue.leaf import sign_leaf
from signer.issue.lint import ExpectedCertificate, lint_certificate
from signer.kinds.cluster import Cluster, ClusterKey
from signer.kinds.csr import Csr
from signer.kinds.decode import Source
from signer.kinds.resources import CLUSTER, CSRS, MACHINE, NODES
from signer.kube.csrs import CsrClient, is_settled, read_csr
from signer.kube.pages import list_objects
from signer.kube.secrets import SecretClient
from signer.kube.transport.client import MAX_WORKLOAD_PAGE, MAX_WORKLOAD_RESPONSE, ApiClient
from signer.policy.policy import Policy

_logger = logging.getLogger(__name__)

REASON: Final = "NothingAttested"
"""Of the condition Approved, and of the Events."""
_ISSUED: Final = "INSECURE: the node {} gets its only client certificate; nothing was attested"
_SERVED: Final = (
    "INSECURE: the insecure signer serves this Cluster: any holder of a bootstrap token can become"
    " any Machine that has not joined"
)
_ROUND_SECONDS: Final = 3.0
_REMINDER_SECONDS: Final = 3600.0
_MAX_LOGGED: Final = 1000
"""Problems of one hour."""
_CSR_PAGE_SIZE: Final = 4
"""Requesters may make each CSR as large as etcd's 1.5 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the command line says, and the sources of time and randomness."""

    program: str
    """The name of the program, for Events and the User-Agent."""
    clusters: Sequence[ClusterKey]
    lifetime: timedelta
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    random: Callable[[int], bytes]


class _OwnRegister:
    """Which of the listed Clusters have which key: no other program serves them."""

    def __init__(self) -> None:
        self._keys: dict[ClusterKey, bytes] = {}

    def clusters_with(self, spki_sha256: bytes) -> AbstractSet[ClusterKey]:
        """Return the Clusters that have the key with this digest."""
        return {cluster for cluster, key in self._keys.items() if key == spki_sha256}

    def assign(self, cluster: ClusterKey, spki_sha256: bytes) -> None:
        """Note that a Cluster has the key with this digest."""
        self._keys[cluster] = spki_sha256


class InsecureSigner:
    """Gives each Machine of the listed Clusters one client certificate without attestation."""

    def __init__(self, api: ApiClient, settings: Settings) -> None:
        """Connect to the management cluster with `api`."""
        self._settings = settings
        self._management = InsecureManagement(api, component=settings.program)
        self._secrets = SecretClient(api)
        self._authorities = ClusterAuthorities(
            self._secrets, _OwnRegister(), _no_policy, monotonic=settings.monotonic
        )
        self._announced: set[str] = set()
        """UIDs of the Clusters that have the Event of this process."""
        self._logged: set[tuple[ClusterKey, str, str]] = set()
        """Cluster, subject and reason of the problems that were logged since the last warning."""

    def run(self, stop: Event) -> None:
        """Serve until `stop` is set; warn at the start and once an hour."""
        warned_at = None
        while not stop.is_set():
            now = self._settings.monotonic()
            if warned_at is None or now - warned_at >= _REMINDER_SECONDS:
                warned_at = now
                self._logged.clear()
                _warn(
                    "nodes get certificates without attestation",
                    clusters=[str(key) for key in self._settings.clusters],
                )
            for key in self._settings.clusters:
                self.serve(key)
            stop.wait(_ROUND_SECONDS)

    def serve(self, key: ClusterKey) -> None:
        """Decide the pending requests of one Cluster once. Never raises."""
        try:
            self._serve(key)
        except AttestationError as error:
            self._log(key, "the Cluster", error)
        except Exception:
            _logger.exception("cluster not served", extra={"fields": {"cluster": str(key)}})

    def _serve(self, key: ClusterKey) -> None:
        management = self._management
        found = management.cluster(key)
        cluster = management.with_signers(found)
        verify_cluster(cluster, management.selecting_policies(found))
        if found.uid not in self._announced:
            regarding = management.reference(CLUSTER, key.namespace, key.name, found.uid)
            management.warn(regarding, REASON, _SERVED, self._settings.now())
            self._announced.add(found.uid)
        # The administrator's kubeconfig: that of the attested signer may not sign for this one.
        secret = self._secrets.read(key.namespace, admin_kubeconfig_name(key))
        connection = read_connection(secret, found)
        agent = self._settings.program
        api = ApiClient(
            str(key),
            connection,
            user_agent=agent,
            max_response=MAX_WORKLOAD_RESPONSE,
            max_page=MAX_WORKLOAD_PAGE,
        )
        query = {"fieldSelector": f"spec.signerName={INSECURE_SIGNER}"}
        with closing(api):
            for csr in list_objects(
                api, CSRS.collection_path(), _read_pending, query=query, page_size=_CSR_PAGE_SIZE
            ):
                self._decide(csr, cluster, api)

    def _decide(self, csr: Csr, cluster: Cluster, api: ApiClient) -> None:
        """Issue the certificate, deny the request, or leave it and show why. Never raises."""
        csrs = CsrClient(api, component=self._settings.program)
        try:
            try:
                self._issue(csr, cluster, api, csrs)
            except Denied as error:
                (csrs.fail if _is_approved(csr) else csrs.deny)(csr, error.reason, error.message)
                raise
        except AttestationError as error:
            if self._log(cluster.key, csr.name, error):
                with suppress(ApiServerUnavailable):
                    csrs.record_event(csr, error.reason, error.message, self._settings.now())
        except Exception:
            _logger.exception("request not decided", extra={"fields": {"csr": csr.name}})

    def _issue(self, csr: Csr, cluster: Cluster, api: ApiClient, csrs: CsrClient) -> None:
        """Verify everything, write the record and the Event, and only then sign."""
        settings, management, key = self._settings, self._management, cluster.key
        request = parse_first_request(csr)
        recorded = verify_first_machine(
            request,
            csr,
            cluster=cluster,
            machines=management.machines(key),
            node_exists=api.find(NODES.object_path(request.node_name)) is not None,
        )
        authority, now = self._authorities.authority(key), settings.now()
        not_after = certificate_not_after(
            lifetime=settings.lifetime, csr=csr, authority=authority, now=now
        )
        management.record(key, recorded, csr)
        message = _ISSUED.format(request.node_name)
        machine = recorded.machine
        regarding = management.reference(MACHINE, key.namespace, machine.name, machine.uid)
        management.warn(regarding, REASON, message, now)
        certificate = sign_leaf(
            request.public_key,
            request.node_name,
            serving_names=None,
            not_after=not_after,
            authority=authority,
            now=now,
            random=settings.random,
        )
        pem = certificate.public_bytes(Encoding.PEM)
        lint_certificate(pem, _expect(request, not_after, authority), now)
        approved = csr if _is_approved(csr) else csrs.approve(csr, REASON, message)
        csrs.set_certificate(approved, pem)
        _warn(
            "certificate issued",
            cluster=str(key),
            machine=machine.name,
            node=request.node_name,
            csr=csr.name,
            requester=csr.username,
            not_after=not_after,
        )

    def _log(self, key: ClusterKey, subject: str, error: AttestationError) -> bool:
        """Log a problem and return true, unless it was logged since the last warning."""
        problem = (key, subject, error.reason)
        if problem in self._logged or len(self._logged) >= _MAX_LOGGED:
            return False
        self._logged.add(problem)
        _warn(
            "no certificate",
            cluster=str(key),
            subject=subject,
            reason=error.reason,
            message=error.message,
            detail=error.detail,
        )
        return True


def _read_pending(source: Source) -> Csr | None:
    """Read a CSR that is not settled. One that cannot be read must not hold up the others."""
    try:
        csr = read_csr(source)
    except ValueError:
        return None
    return None if is_settled(csr) else csr


def _expect(
    request: Pkcs10, not_after: datetime, authority: CertificateAuthority
) -> ExpectedCertificate:
    """Return what the client certificate of a request must say."""
    return ExpectedCertificate(
        node_name=request.node_name,
        organizations=[NODES_GROUP],
        public_key=request.public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        serving_names=None,
        authority=authority.certificate,
        latest_end=not_after,
    )


def _is_approved(csr: Csr) -> bool:
    return "Approved" in csr.conditions


def _no_policy(_key: ClusterKey) -> Policy:
    """No Cluster of this program has a policy, so none may share its authority."""
    raise PolicyMissing("the insecure signer has no policies")


def _warn(event: str, **fields: object) -> None:
    _logger.warning("INSECURE: %s", event, extra={"fields": {**fields, "alarm": True}})
