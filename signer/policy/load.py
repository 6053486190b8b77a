"""Loads policies from YAML text and from the objects of the API, both in one schema.

Refuses unknown and repeated keys, empty lists and contradictory rules, and reports all problems at
once. Does not open the files that a policy names.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from common.formats import strict_yaml
from common.names import API_GROUP, API_VERSION, SUPPORTED_VERSIONS
from signer.errors import ProblemsError
from signer.kinds.cluster import ClusterKey
from signer.kinds.policy import POLICY_KIND
from signer.policy.cross_field import add_cross_field_problems
from signer.policy.pcr_rules import read_event_log, read_pcrs
from signer.policy.policy import (
    SCHEMES,
    AttestationKeyRules,
    CertificateNameRules,
    CertificateRules,
    ClusterSelector,
    EndorsementKeyRules,
    FirstJoinRules,
    NodeNameRules,
    PlatformRules,
    Policy,
    PolicySet,
    RefusedPolicy,
    RenewalRules,
    ServingRules,
)
from signer.policy.section import Section

_MIN_LIFETIME: Final = timedelta(hours=1)
_MIN_WINDOW: Final = timedelta(minutes=1)
_DEFAULTS: Final = Policy(name="defaults")


class PolicyFileInvalid(ProblemsError):
    """The text is not valid policies."""


def load_policies(text: str) -> PolicySet:
    """Load one or several YAML documents. Raises `PolicyFileInvalid` with every problem."""
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
        raise PolicyFileInvalid(*problems)
    return PolicySet(accepted=tuple(policies))


def load_spec(name: str, spec: object) -> Policy | RefusedPolicy:
    """Load the `spec` of one policy, as Python values; never raises."""
    problems: list[str] = []
    section = Section(spec, "spec", problems)
    policy = _spec(name, section)
    section.reject_unknown_keys()
    if not problems:
        return policy
    return RefusedPolicy(name=name, clusters=policy.clusters, problems=tuple(problems))


def _documents(text: str) -> list[object]:
    try:
        documents = strict_yaml.load_all(text)
    except strict_yaml.YamlMalformed as error:
        raise PolicyFileInvalid(f"not YAML: {error}") from None
    return [document for document in documents if document is not None]


def _require_unique(
    values: Iterable[str | ClusterKey | None], template: str, problems: list[str]
) -> None:
    seen: set[str | ClusterKey | None] = set()
    for value in values:
        if value in seen:
            name = "all other clusters" if value is None else value
            problems.append(f"several {template.format(name)}")
        seen.add(value)


def _policy(document: object, problems: list[str]) -> Policy:
    root = Section(document, "", problems)
    if root.value("apiVersion") != f"{API_GROUP}/{API_VERSION}":
        root.add_problem(f"must be {API_GROUP}/{API_VERSION}", "apiVersion")
    if root.value("kind") != POLICY_KIND:
        root.add_problem(f"must be {POLICY_KIND}", "kind")
    root.require("spec")
    # Labels and annotations are no rules: the API server reads them, as it does of every kind.
    metadata = Section(root.value("metadata"), "metadata", problems)
    policy = _spec(metadata.text("name"), root.section("spec"))
    root.reject_unknown_keys()
    return policy


def _spec(name: str, spec: Section) -> Policy:
    endorsement_key = _endorsement_key(spec.section("endorsementKey"))
    attestation_key = _attestation_key(spec.section("attestationKey"))
    names_machine = bool(attestation_key.certificate_authorities)
    pcrs = read_pcrs(spec.section("pcrs"), _DEFAULTS.pcrs, names_machine=names_machine)
    policy = Policy(
        name=name,
        clusters=_clusters(spec),
        mode=spec.choice("mode", _DEFAULTS.mode),
        approval=spec.choice("approval", _DEFAULTS.approval),
        minimum_version=_minimum_version(spec),
        bootstrap_groups=frozenset(
            spec.strings("bootstrapGroups", tuple(_DEFAULTS.bootstrap_groups))
        ),
        endorsement_key=endorsement_key,
        attestation_key=attestation_key,
        pcrs=pcrs,
        event_log=read_event_log(spec, pcrs.selection),
        node_names=_node_names(spec.section("nodeNames")),
        first_join=_first_join(spec),
        certificate=_certificate(spec.section("certificate")),
        name_reuse=spec.choice("nameReuse", _DEFAULTS.name_reuse),
        renewals=_renewals(spec.section("renewals")),
        auto_approve_bindings=spec.choice("autoApproveBindings", _DEFAULTS.auto_approve_bindings),
        node_labels=spec.choice("nodeLabels", _DEFAULTS.node_labels),
        access_review=spec.choice("accessReview", _DEFAULTS.access_review),
        serving=_serving(spec.section("serving")),
    )
    add_cross_field_problems(policy, spec)
    return policy


def _clusters(spec: Section) -> ClusterSelector | None:
    if "clusterRef" in spec:
        spec.value("clusterSelector")  # it is known, and a row of the other rules refuses it
        reference = spec.section("clusterRef")
        key = ClusterKey(namespace=reference.text("namespace"), name=reference.text("name"))
        return ClusterSelector(cluster=key)
    if "clusterSelector" not in spec:
        return None
    selector = spec.section("clusterSelector")
    namespaces = frozenset(selector.strings("namespaces", ()))
    # Tenants write the labels of their Clusters: labels alone could choose any policy.
    selector.require("namespaces")
    labels = selector.mapping("matchLabels") if "matchLabels" in selector else {}
    return ClusterSelector(namespaces=namespaces, match_labels=labels) if namespaces else None


def _minimum_version(spec: Section) -> str:
    version = spec.text("minimumVersion", _DEFAULTS.minimum_version)
    if version in SUPPORTED_VERSIONS:
        return version
    spec.add_problem(f"must be one of {', '.join(SUPPORTED_VERSIONS)}", "minimumVersion")
    return _DEFAULTS.minimum_version


def _endorsement_key(section: Section) -> EndorsementKeyRules:
    defaults = _DEFAULTS.endorsement_key
    return EndorsementKeyRules(
        trust=section.choice("trust", defaults.trust),
        platform=_platform(section),
        certificate_authorities=section.strings("certificateAuthorities", ()),
        certificate_revocation_lists=section.strings("certificateRevocationLists", ()),
        allow_certificates_without_usage=section.boolean(
            "allowCertificatesWithoutUsage", default=defaults.allow_certificates_without_usage
        ),
        certificate_names=_certificate_names(section),
    )


def _certificate_names(endorsement_key: Section) -> CertificateNameRules:
    if "certificateNames" not in endorsement_key:
        return CertificateNameRules()
    section = endorsement_key.section("certificateNames")
    if "gce" not in section and "domainUUID" not in section:
        section.add_problem("must have gce or domainUUID")
    return CertificateNameRules(
        gce_projects=_required_strings(section, "gce", "projects"),
        domain_uuid_schemes=_required_strings(section, "domainUUID", "schemes"),
        unnamed=section.choice("unnamed", CertificateNameRules().unnamed),
    )


def _required_strings(parent: Section, part: str, key: str) -> frozenset[str]:
    """Return the list `key` of an optional part, in which the list is required."""
    if part not in parent:
        return frozenset()
    section = parent.section(part)
    section.require(key)
    return frozenset(section.strings(key, ()))


def _platform(endorsement_key: Section) -> PlatformRules | None:
    if "platform" not in endorsement_key:
        return None
    section = endorsement_key.section("platform")
    rules = PlatformRules(
        type=section.text("type"),
        credentials_file=section.text("credentialsFile"),
        locations=frozenset(section.strings("locations", ())),
    )
    # Tenants write provider IDs: without a list they could name any place.
    section.require("locations")
    if rules.credentials_file and not rules.credentials_file.startswith("/"):
        section.add_problem("must be an absolute path", "credentialsFile")
    return rules


def _attestation_key(section: Section) -> AttestationKeyRules:
    defaults = tuple(_DEFAULTS.attestation_key.schemes)
    schemes = frozenset(section.strings("schemes", defaults))
    if not schemes <= SCHEMES:
        section.add_problem(
            f"has unknown schemes: {', '.join(sorted(schemes - SCHEMES))}", "schemes"
        )
    return AttestationKeyRules(
        schemes=schemes, certificate_authorities=section.strings("certificateAuthorities", ())
    )


def _node_names(section: Section) -> NodeNameRules:
    default = _DEFAULTS.node_names.machine_name
    return NodeNameRules(machine_name=section.boolean("machineName", default=default))


def _first_join(spec: Section) -> FirstJoinRules | None:
    if "firstJoin" not in spec:
        return None
    section = spec.section("firstJoin")
    section.require("within")
    return FirstJoinRules(within=section.duration("within", _MIN_WINDOW, minimum=_MIN_WINDOW))


def _certificate(section: Section) -> CertificateRules:
    defaults = _DEFAULTS.certificate
    return CertificateRules(
        lifetime=section.duration("lifetime", defaults.lifetime, minimum=_MIN_LIFETIME),
        allow_shared_authority=section.boolean(
            "allowSharedAuthority", default=defaults.allow_shared_authority
        ),
    )


def _renewals(section: Section) -> RenewalRules:
    defaults = _DEFAULTS.renewals
    return RenewalRules(
        unknown_credential=section.choice("unknownCredential", defaults.unknown_credential),
        taint_unattested=section.boolean("taintUnattested", default=defaults.taint_unattested),
    )


def _serving(section: Section) -> ServingRules:
    defaults = _DEFAULTS.serving
    return ServingRules(
        builtin=section.choice("builtin", defaults.builtin),
        node_ref_fallback=section.boolean("nodeRefFallback", default=defaults.node_ref_fallback),
    )
