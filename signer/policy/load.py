"""Loads policies from YAML text and from the objects of the API, both in one schema.

Refuses unknown and repeated keys, empty lists and contradictory rules, and reports all problems at
once. Does not open the files that a policy names.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from common import strict_yaml
from common.names import API_GROUP, API_VERSION, SUPPORTED_VERSIONS
from signer.model import ClusterKey
from signer.policy.pcr_rules import read_allowed, read_event_log, read_selection, read_variants
from signer.policy.policy import (
    SCHEMES,
    ClusterSelector,
    FirstJoinRules,
    KubeletServingMode,
    PlatformRules,
    Policy,
    PolicyMode,
    PolicySet,
    RefusedPolicy,
    TrustMode,
    UnknownCredential,
)
from signer.policy.section import Section

POLICY_KIND: Final = "KubeletAttestationPolicy"
_MIN_LIFETIME: Final = timedelta(hours=1)
_MIN_WINDOW: Final = timedelta(minutes=1)
_DEFAULTS: Final = Policy(name="defaults")
_ATTESTATION_RULES: Final = (
    "endorsementKey",
    "attestationKey",
    "pcrs",
    "eventLog",
    "bootstrapGroups",
    "firstJoin",
    "certificate",
    "nameReuse",
    "renewals",
    "autoApproveBindings",
    "nodeLabels",
    "serving",
    "minimumVersion",
)
"""Keys that have no meaning with mode ServingOnly. A rule that is not in force is refused."""


class PolicyFileInvalid(ValueError):
    """The text is not valid policies; `problems` has all reasons, one line each."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        """Keep every problem."""
        super().__init__("; ".join(problems))
        self.problems = problems


def load_policies(text: str) -> PolicySet:
    """Load one or several YAML documents.

    Raises:
        PolicyFileInvalid: with every problem.

    """
    problems: list[str] = []
    policies = [_policy(document, problems) for document in _documents(text)]
    if not policies:
        problems.append("the file must hold a policy")
    _require_unique((p.name for p in policies), "policies with the name {}", problems)
    _require_unique(
        (p.clusters.cluster for p in policies if p.clusters and p.clusters.cluster),
        "policies for {}",
        problems,
    )
    _require_unique((None for p in policies if p.clusters is None), "policies for {}", problems)
    if problems:
        raise PolicyFileInvalid(tuple(problems))
    return PolicySet(accepted=tuple(policies))


def load_spec(name: str, spec: object) -> Policy | RefusedPolicy:
    """Load the `spec` of one policy, as Python values; never raises."""
    problems: list[str] = []
    policy = _whole_spec(name, Section(spec, "spec", problems))
    if not problems:
        return policy
    return RefusedPolicy(name=name, clusters=policy.clusters, problems=tuple(problems))


def _documents(text: str) -> list[object]:
    try:
        documents = strict_yaml.load_all(text)
    except strict_yaml.YamlMalformed as error:
        raise PolicyFileInvalid((f"not YAML: {error}",)) from None
    return [document for document in documents if document is not None]


def _require_unique(
    values: Iterable[str | ClusterKey | None], template: str, problems: list[str]
) -> None:
    seen: set[str | ClusterKey | None] = set()
    for value in values:
        if value in seen:
            name = value if isinstance(value, str) else _cluster_text(value)
            problems.append(f"several {template.format(name)}")
        seen.add(value)


def _cluster_text(cluster: ClusterKey | None) -> str:
    return "all other clusters" if cluster is None else f"{cluster.namespace}/{cluster.name}"


def _policy(document: object, problems: list[str]) -> Policy:
    root = Section(document, "", problems)
    if root.value("apiVersion") != f"{API_GROUP}/{API_VERSION}":
        root.add_problem(f"must be {API_GROUP}/{API_VERSION}", "apiVersion")
    if root.value("kind") != POLICY_KIND:
        root.add_problem(f"must be {POLICY_KIND}", "kind")
    metadata = root.section("metadata")
    name = metadata.text("name")
    metadata.reject_unknown_keys()
    if "spec" not in root:
        root.add_problem("is required", "spec")
    policy = _whole_spec(name, root.section("spec"))
    root.reject_unknown_keys()
    return policy


def _whole_spec(name: str, spec: Section) -> Policy:
    policy = _spec(name, spec)
    spec.reject_unknown_keys()
    return policy


def _spec(name: str, spec: Section) -> Policy:
    endorsement_key = spec.section("endorsementKey")
    trust, authorities, revocations, without_usage = _endorsement_key(endorsement_key)
    platform = _platform(endorsement_key, trust)
    endorsement_key.reject_unknown_keys()
    pcrs = spec.section("pcrs")
    selection = read_selection(pcrs, _DEFAULTS.pcr_selection)
    mode = pcrs.choice("mode", _DEFAULTS.pcr_mode)
    variants = read_variants(pcrs, selection, mode)
    allowed = read_allowed(pcrs, selection, mode, needed=not variants)
    pcrs.reject_unknown_keys()
    builtin, by_node_ref = _serving(spec.section("serving"))
    lifetime, shared = _certificate(spec.section("certificate"))
    unknown_credential, publish_credentials = _renewals(spec.section("renewals"))
    return Policy(
        name=name,
        clusters=_clusters(spec),
        mode=_mode(spec),
        approval=spec.choice("approval", _DEFAULTS.approval),
        minimum_version=_minimum_version(spec),
        bootstrap_groups=frozenset(
            spec.strings("bootstrapGroups", tuple(_DEFAULTS.bootstrap_groups))
        ),
        trust=trust,
        platform=platform,
        certificate_authorities=authorities,
        certificate_revocation_lists=revocations,
        allow_certificates_without_usage=without_usage,
        attestation_key_schemes=_schemes(spec.section("attestationKey")),
        pcr_selection=selection,
        pcr_mode=mode,
        pcr_allowed=allowed,
        pcr_variants=variants,
        event_log=read_event_log(spec, selection),
        machine_name_is_node_name=_machine_name(spec.section("nodeNames")),
        first_join=_first_join(spec),
        certificate_lifetime=lifetime,
        allow_shared_authority=shared,
        name_reuse=spec.choice("nameReuse", _DEFAULTS.name_reuse),
        unknown_credential=unknown_credential,
        publish_credentials=publish_credentials,
        auto_approve_bindings=spec.choice("autoApproveBindings", _DEFAULTS.auto_approve_bindings),
        node_labels=spec.choice("nodeLabels", _DEFAULTS.node_labels),
        access_review=spec.choice("accessReview", _DEFAULTS.access_review),
        builtin_serving=builtin,
        serving_by_node_ref=by_node_ref,
    )


def _mode(spec: Section) -> PolicyMode:
    mode = spec.choice("mode", _DEFAULTS.mode)
    if mode is PolicyMode.SERVING_ONLY:
        for key in _ATTESTATION_RULES:
            if key in spec:
                spec.add_problem("must be absent with mode ServingOnly", key)
    return mode


def _clusters(spec: Section) -> ClusterSelector | None:
    if "clusterRef" in spec:
        if spec.value("clusterSelector") is not None:
            spec.add_problem("must be absent with clusterRef", "clusterSelector")
        reference = spec.section("clusterRef")
        key = ClusterKey(namespace=reference.text("namespace"), name=reference.text("name"))
        reference.reject_unknown_keys()
        return ClusterSelector(cluster=key)
    if "clusterSelector" not in spec:
        return None
    selector = spec.section("clusterSelector")
    namespaces = frozenset(selector.strings("namespaces", ()))
    if "namespaces" not in selector:
        # Tenants write the labels of their Clusters: labels alone could choose any policy.
        selector.add_problem("is required", "namespaces")
    labels = selector.mapping("matchLabels") if "matchLabels" in selector else {}
    selector.reject_unknown_keys()
    return ClusterSelector(namespaces=namespaces, match_labels=labels) if namespaces else None


def _minimum_version(spec: Section) -> str:
    version = spec.text("minimumVersion", _DEFAULTS.minimum_version)
    if version in SUPPORTED_VERSIONS:
        return version
    spec.add_problem(f"must be one of {', '.join(SUPPORTED_VERSIONS)}", "minimumVersion")
    return _DEFAULTS.minimum_version


def _endorsement_key(section: Section) -> tuple[TrustMode, tuple[str, ...], tuple[str, ...], bool]:
    trust = section.choice("trust", _DEFAULTS.trust)
    authorities = section.strings("certificateAuthorities", ())
    revocations = section.strings("certificateRevocationLists", ())
    without_usage = section.boolean(
        "allowCertificatesWithoutUsage", default=_DEFAULTS.allow_certificates_without_usage
    )
    if trust.needs_certificate and not authorities:
        section.add_problem(f"is required with trust {trust.value}", "certificateAuthorities")
    if not trust.needs_certificate:
        for key in (
            "certificateAuthorities",
            "certificateRevocationLists",
            "allowCertificatesWithoutUsage",
        ):
            if key in section:
                section.add_problem(f"must be absent with trust {trust.value}", key)
    return trust, authorities, revocations, without_usage


def _platform(endorsement_key: Section, trust: TrustMode) -> PlatformRules | None:
    if "platform" not in endorsement_key:
        return None
    if not trust.needs_record:
        endorsement_key.add_problem(f"must be absent with trust {trust.value}", "platform")
    section = endorsement_key.section("platform")
    rules = PlatformRules(
        type=section.text("type"),
        credentials_file=section.text("credentialsFile"),
        locations=frozenset(section.strings("locations", ())),
    )
    if "locations" not in section:
        # Tenants write provider IDs: without a list they could name any place.
        section.add_problem("is required", "locations")
    if rules.credentials_file and not rules.credentials_file.startswith("/"):
        section.add_problem("must be an absolute path", "credentialsFile")
    section.reject_unknown_keys()
    return rules


def _schemes(section: Section) -> frozenset[str]:
    schemes = frozenset(section.strings("schemes", tuple(_DEFAULTS.attestation_key_schemes)))
    if not schemes <= SCHEMES:
        section.add_problem(
            f"has unknown schemes: {', '.join(sorted(schemes - SCHEMES))}", "schemes"
        )
    section.reject_unknown_keys()
    return schemes


def _machine_name(section: Section) -> bool:
    value = section.boolean("machineName", default=_DEFAULTS.machine_name_is_node_name)
    section.reject_unknown_keys()
    return value


def _first_join(spec: Section) -> FirstJoinRules | None:
    if "firstJoin" not in spec:
        return None
    section = spec.section("firstJoin")
    if "within" not in section:
        section.add_problem("is required", "within")
    within = section.duration("within", _MIN_WINDOW, minimum=_MIN_WINDOW)
    section.reject_unknown_keys()
    return FirstJoinRules(within=within)


def _certificate(section: Section) -> tuple[timedelta, bool]:
    lifetime = section.duration("lifetime", _DEFAULTS.certificate_lifetime, minimum=_MIN_LIFETIME)
    shared = section.boolean("allowSharedAuthority", default=_DEFAULTS.allow_shared_authority)
    section.reject_unknown_keys()
    return lifetime, shared


def _renewals(section: Section) -> tuple[UnknownCredential, bool]:
    unknown = section.choice("unknownCredential", _DEFAULTS.unknown_credential)
    publish = section.boolean("publishCredentials", default=_DEFAULTS.publish_credentials)
    section.reject_unknown_keys()
    return unknown, publish


def _serving(section: Section) -> tuple[KubeletServingMode, bool]:
    builtin = section.choice("builtin", _DEFAULTS.builtin_serving)
    by_node_ref = section.boolean("nodeRefFallback", default=_DEFAULTS.serving_by_node_ref)
    if by_node_ref and builtin is KubeletServingMode.IGNORE:
        section.add_problem("must be absent with builtin Ignore", "nodeRefFallback")
    section.reject_unknown_keys()
    return builtin, by_node_ref
