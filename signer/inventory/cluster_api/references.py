"""What Machines and Clusters refer to: infrastructure objects, and KubeadmConfigs."""

import re
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from common.names import ENDORSEMENT_KEY_ANNOTATION
from signer.inventory.cluster_api.key_annotation import KeyAnnotation, read_key_annotation
from signer.kinds.decode import Fields, MaybeName, MaybeText, Source, Text, decode, shared
from signer.kinds.resources import KUBEADM_CONFIG

UNKNOWN_TOKEN: Final = ""
"""In place of the ID of a token that should exist and is not known. No requester has this ID."""
_TOKEN: Final = re.compile(r"([a-z0-9]{6})\.[a-z0-9]{16}")
_MAX_ANNOTATION: Final = 256 << 10
"""Characters: Kubernetes allows 256 KiB for all annotations of an object."""
Annotation = Annotated[str, msgspec.Meta(max_length=_MAX_ANNOTATION)] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Another object in the same namespace, in any version of its API group."""

    group: str
    kind: str
    namespace: str
    name: str

    @property
    def key(self) -> str:
        """Return the object's key in the cache of its kind."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class InfrastructureObject:
    """Fields of an infrastructure provider's object: registered keys, or a cluster's signer."""

    registered_keys: KeyAnnotation
    client_signer: str | None
    """`status.kubeletClientCertificateSigner` of an infrastructure cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapObject:
    """A KubeadmConfig: the ID of its bootstrap token, `None` where it has no token."""

    token_id: str | None


class ReferenceFields(Fields):
    """A reference of v1beta2 (`apiGroup`) or v1beta1 (`apiVersion`)."""

    kind: MaybeText = None
    name: MaybeName = None
    api_group: MaybeText = None
    api_version: MaybeText = None


class KeyAnnotationFields(Fields):
    """The annotation with registered keys, of a Machine or of its infrastructure object."""

    endorsement_key: Annotation = msgspec.field(name=ENDORSEMENT_KEY_ANNOTATION, default=None)


class _InfrastructureMeta(Fields):
    annotations: KeyAnnotationFields | None = None


class _InfrastructureStatus(Fields):
    client_signer: MaybeText = msgspec.field(name="kubeletClientCertificateSigner", default=None)


class _Infrastructure(Fields):
    kind: Text
    metadata: _InfrastructureMeta
    status: _InfrastructureStatus | None = None


class _TokenDiscovery(Fields):
    token: MaybeText = None


class _Discovery(Fields):
    bootstrap_token: _TokenDiscovery | None = None
    tls_bootstrap_token: MaybeText = None


class _JoinConfiguration(Fields):
    discovery: _Discovery | None = None


class _ConfigSpec(Fields):
    join_configuration: _JoinConfiguration | None = None


class _Config(Fields):
    spec: _ConfigSpec | None = None


def read_infrastructure(source: Source) -> InfrastructureObject:
    """Read an infrastructure provider's object of any kind. Raises `ValueError`."""
    infrastructure = decode(source, _Infrastructure)
    annotations, status = infrastructure.metadata.annotations, infrastructure.status
    return InfrastructureObject(
        registered_keys=read_registered_keys(annotations, f"{infrastructure.kind} annotation"),
        client_signer=(status.client_signer or None) if status else None,
    )


def read_bootstrap(source: Source) -> BootstrapObject:
    """Read the ID of a KubeadmConfig's bootstrap token, but not the token's secret part.

    `tlsBootstrapToken` comes first, as in kubeadm: it overrides the token of `bootstrapToken`, and
    file discovery has no other. Raises `ValueError`.
    """
    spec = decode(source, _Config).spec
    join = spec and spec.join_configuration
    discovery = (join and join.discovery) or _Discovery()
    bootstrap_token = discovery.bootstrap_token
    token = discovery.tls_bootstrap_token or (bootstrap_token and bootstrap_token.token)
    if not token:
        return BootstrapObject(token_id=None)
    matched = _TOKEN.fullmatch(token)
    return BootstrapObject(token_id=matched[1] if matched else UNKNOWN_TOKEN)


def build_reference(reference: ReferenceFields | None, namespace: str) -> Reference | None:
    """Return a reference within a namespace, `None` where group, kind or name is missing."""
    if reference is None:
        return None
    group = reference.api_group or (reference.api_version or "").partition("/")[0]
    if not reference.kind or not reference.name or not group:
        return None
    kind = shared(reference.kind)
    return Reference(group=shared(group), kind=kind, namespace=namespace, name=reference.name)


def is_kubeadm_config(reference: Reference) -> bool:
    """Return whether a bootstrap configuration is of the one kind that has bootstrap tokens."""
    return (reference.group, reference.kind) == KUBEADM_CONFIG


def read_registered_keys(annotations: KeyAnnotationFields | None, source: str) -> KeyAnnotation:
    """Return the keys in the annotations of `source`, the name of an object in errors."""
    return read_key_annotation(annotations.endorsement_key if annotations else None, source)
