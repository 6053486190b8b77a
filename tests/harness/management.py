"""A management cluster: Cluster API's objects, ours, and the identity of the signer."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import yaml

from tests.controlplane import provide
from tests.harness import kubeconfig, objects
from tests.harness.client import ApiError, Client, Object
from tests.harness.controlplane import HOST, ApiServer
from tests.harness.pki import Pair
from tests.harness.process import free_port, running, wait_until, wait_until_ready
from tests.harness.workload import MANIFESTS, PACKAGING

NAMESPACE = "node-attestation-system"
ACCOUNT = "node-attestation-signer"
TOKEN_SECONDS = 86400
POLICIES = "/apis/attestation.cluster.x-k8s.io/v1alpha1/kubeletattestationpolicies"
_OURS = "policy-"
"""The names of the policies of `set_policies` begin with it."""
NONE: objects.Annotations = MappingProxyType({})
PERMISSIONS = ("management-rbac.yaml", "admission-policy.yaml")
"""The manifests with what the signer may do. An installation by Helm has its own of all of it."""


class ManagementCluster(ApiServer):
    """The cluster with Clusters and Machines, and methods that create them."""

    packaging = PACKAGING
    """The directory with the manifests of this project."""

    def start(self) -> None:
        """Start the API server and install all CRDs, the signer's role and its policy."""
        super().start()
        self._install_crds()
        self.install_attestation()
        wait_until(self._crds_served, what="the CRDs are served")

    def install_attestation(self) -> None:
        """Install the CRDs of this project, the signer's role and the admission policy."""
        for name in ("crds", *PERMISSIONS):
            self.kubectl("apply", "--server-side", "-f", str(self.packaging / name))
        signer = self.with_token(self._signer_token())
        wait_until(
            lambda: signer.may("get", "secrets"), what="the API server applies the signer's role"
        )

    def remove_permissions(self) -> None:
        """Remove the signer's role and the admission policy, but not the signer's namespace.

        Nothing in this cluster completes the deletion of a namespace.
        """
        texts = [(self.packaging / name).read_text(encoding="utf-8") for name in PERMISSIONS]
        documents = [each for text in texts for each in yaml.safe_load_all(text)]
        items = [each for each in documents if each["kind"] != "Namespace"]
        bundle = {"apiVersion": "v1", "kind": "List", "items": items}
        self.kubectl("delete", "-f", "-", stdin=json.dumps(bundle))

    @contextmanager
    def cluster_api(self, namespace: str) -> Iterator[None]:
        """Run Cluster API's own core manager for one namespace.

        Only for one, because it writes the status of objects, which other tests set themselves. The
        kubeconfig Secrets there must allow it to write Nodes, as those of Cluster API do.
        """
        health = f"{HOST}:{free_port()}"
        # It serves webhooks, which are not installed here, and needs a certificate for them.
        certificate, _ = self._write_pair("tls", self.authority.server("localhost"))
        flags = [
            f"--kubeconfig={self.admin_config}",
            f"--namespace={namespace}",
            f"--webhook-cert-dir={certificate.parent}",
            f"--webhook-port={free_port()}",
            f"--health-addr={health}",
            f"--diagnostics-address={HOST}:{free_port()}",
            "--insecure-diagnostics",
            "--leader-elect=false",
        ]
        program = provide.tool(provide.CLUSTER_API)
        log = self._log(f"cluster-api-{namespace}")
        with running([program, *flags], log=log, env=self._environment()) as manager:
            probe = Client(server=f"http://{health}", authority=self.admin.authority)
            wait_until_ready(manager, probe.ready, what="Cluster API is ready", log=log)
            yield

    def signer_kubeconfig(self) -> str:
        """Return a kubeconfig for the service account of the packaging."""
        authority = self.authority.pair.certificate
        return kubeconfig.with_token(self.url, authority, self._signer_token(), user=ACCOUNT)

    def set_policies(self, *specs: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """Replace the policies of the last call by these; return what they were."""
        stored = [p for p in self.admin.list(POLICIES) if p["metadata"]["name"].startswith(_OURS)]
        for policy in stored:
            self.admin.delete(f"{POLICIES}/{policy['metadata']['name']}")
        for number, spec in enumerate(specs):
            self.create_policy(f"{_OURS}{number}", spec)
        return [policy["spec"] for policy in stored]

    def create_policy(self, name: str, spec: Mapping[str, Any]) -> Object:
        """Create a KubeletAttestationPolicy."""
        body = {
            "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
            "kind": "KubeletAttestationPolicy",
            "metadata": {"name": name},
            "spec": dict(spec),
        }
        return self.admin.create(POLICIES, body)

    def create_namespace(self, name: str) -> Object:
        """Create a namespace."""
        return self.admin.create("/api/v1/namespaces", {"metadata": {"name": name}})

    def create_cluster(
        self, namespace: str, name: str, *, endpoint: str, annotations: objects.Annotations = NONE
    ) -> Object:
        """Create a Cluster that is provisioned, with its infrastructure object."""
        self.create_object(namespace, objects.infrastructure_cluster(name))
        cluster = objects.cluster(name, endpoint=endpoint, annotations=annotations)
        return self.create_object(namespace, cluster)

    def create_machine(self, namespace: str, cluster: str, spec: objects.Machine) -> Object:
        """Create a Machine whose node has not joined, with its infrastructure object."""
        provider_id = spec.provider_id or f"test://{namespace}/{spec.name}"
        self.create_object(
            namespace, objects.infrastructure_machine(cluster, spec, provider_id=provider_id)
        )
        return self.create_object(
            namespace, objects.machine(cluster, spec, provider_id=provider_id)
        )

    def delete_machine(self, namespace: str, name: str) -> None:
        """Delete a Machine and its infrastructure object."""
        for group, kind in (
            (f"{objects.CORE}/v1beta2", "machines"),
            (f"{objects.INFRASTRUCTURE}/v1", "testmachines"),
        ):
            self.admin.delete(f"/apis/{group}/namespaces/{namespace}/{kind}/{name}")

    def store_kubeconfig(self, namespace: str, cluster: str, text: str) -> Object:
        """Create the Secret with which the management cluster reaches a workload cluster."""
        return self._create_secret(namespace, cluster, "kubeconfig", {"value": text})

    def store_authority(self, namespace: str, cluster: str, pair: Pair) -> Object:
        """Create the Secret with a workload cluster's certificate authority."""
        return self._create_secret(namespace, cluster, "ca", _authority(pair))

    def replace_authority(self, namespace: str, cluster: str, pair: Pair) -> Object:
        """Replace the certificate authority in a workload cluster's Secret."""
        return self.replace_secret(namespace, cluster, "ca", _authority(pair))

    def replace_secret(
        self, namespace: str, cluster: str, purpose: str, data: Mapping[str, str]
    ) -> Object:
        """Write other data into a Secret that Cluster API keeps for a Cluster."""
        path = f"/api/v1/namespaces/{namespace}/secrets/{cluster}-{purpose}"
        return self.admin.patch(path, {"stringData": dict(data)})

    def _create_secret(
        self, namespace: str, cluster: str, purpose: str, data: Mapping[str, str]
    ) -> Object:
        secret = objects.secret(cluster, purpose, data)
        return self.admin.create(f"/api/v1/namespaces/{namespace}/secrets", secret)

    def create_object(self, namespace: str, body: Object) -> Object:
        """Create an object of Cluster API or a provider, with its status where it has one."""
        plural = f"{body['kind'].lower()}s"
        path = f"/apis/{body['apiVersion']}/namespaces/{namespace}/{plural}"
        created = self.admin.create(path, body)
        if "status" not in body:
            return created
        # A create request drops the status.
        status = {"status": body["status"]}
        return self.admin.patch(f"{path}/{body['metadata']['name']}/status", status)

    def _signer_token(self) -> str:
        path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token"
        request = {"spec": {"expirationSeconds": TOKEN_SECONDS}}
        token: str = self.admin.create(path, request)["status"]["token"]
        return token

    def _cluster_api_crds(self) -> list[Object]:
        """Return Cluster API's CRDs."""
        files = [file for directory in provide.crds() for file in sorted(directory.glob("*.yaml"))]
        return [yaml.safe_load(file.read_text()) for file in files]

    def _install_crds(self) -> None:
        crds = self._cluster_api_crds()
        for crd in crds:
            # As Cluster API's installation does: the label names the version of references.
            crd["metadata"].setdefault("labels", {})["cluster.x-k8s.io/v1beta2"] = "v1beta2"
        bundle = {"apiVersion": "v1", "kind": "List", "items": crds}
        self.kubectl("create", "-f", "-", stdin=json.dumps(bundle))
        self.kubectl("create", "-f", str(MANIFESTS / "infrastructure-crds.yaml"))

    def _crds_served(self) -> bool:
        """Return whether all kinds are served, which follows the establishment of their CRDs."""
        crds = self.admin.list("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
        return all(_is_established(crd) and self._is_served(crd) for crd in crds)

    def _is_served(self, crd: Object) -> bool:
        [stored] = [version["name"] for version in crd["spec"]["versions"] if version["storage"]]
        try:
            self.admin.list(
                f"/apis/{crd['spec']['group']}/{stored}/{crd['spec']['names']['plural']}"
            )
        except ApiError as error:
            if error.code not in {404, 429, 503}:  # not served yet
                raise
            return False
        return True


def _is_established(crd: Object) -> bool:
    return any(
        condition["type"] == "Established" and condition["status"] == "True"
        for condition in crd["status"].get("conditions") or ()
    )


def _authority(pair: Pair) -> dict[str, str]:
    return {"tls.crt": pair.certificate.decode(), "tls.key": pair.key.decode()}
