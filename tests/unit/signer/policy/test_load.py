"""Policies: the defaults, every setting, and every problem that a file can have."""

from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import product
from operator import getitem
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from common.public_keys import require_supported_key
from signer.errors import PolicyConflict, PolicyInvalid, PolicyMissing
from signer.kinds.cluster import ClusterKey
from signer.policy.load import PolicyFileInvalid, load_policies, load_spec
from signer.policy.policy import (
    AccessReview,
    Approval,
    AttestationKeyRules,
    AutoApproveBindings,
    CertificateRules,
    ClusterSelector,
    EndorsementKeyRules,
    EventLogRules,
    FirstJoinRules,
    KubeletServingMode,
    NameReuse,
    NodeLabels,
    NodeNameRules,
    PcrMode,
    PcrRules,
    PcrSignatureRules,
    PcrVariant,
    PlatformRules,
    Policy,
    PolicyMode,
    PolicySet,
    RefusedPolicy,
    RenewalRules,
    ServingRules,
    TrustMode,
    UnknownCredential,
)
from signer.policy.signed_pcr_rules import fingerprint
from tests.builders.policy_specs import (
    BAD_SPECS,
    EVERY_SETTING,
    VENDOR_KEY,
    A,
    B,
    enforced,
    signed_by,
)
from tests.builders.scenario import ABROAD, HOME
from tests.builders.software_tpm import AK_KINDS


def document(name: str = "default", /, **spec: object) -> dict[str, Any]:
    """Return a policy document."""
    return {
        "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
        "kind": "KubeletAttestationPolicy",
        "metadata": {"name": name},
        "spec": spec,
    }


def load(*documents: object) -> PolicySet:
    """Load policy documents."""
    return load_policies(yaml.safe_dump_all(documents))


def only(**spec: object) -> Policy:
    """Load a policy for all Clusters."""
    [policy] = load(document(**spec)).accepted
    return policy


def problems(*documents: object) -> tuple[str, ...]:
    """Return why the documents are refused."""
    with pytest.raises(PolicyFileInvalid) as caught:
        load(*documents)
    return caught.value.problems


def test_an_empty_spec_has_the_defaults() -> None:
    """They require a registered endorsement key."""
    policy = only()
    assert policy == Policy(name="default")
    assert policy.mode is PolicyMode.ATTESTATION
    assert policy.access_review is AccessReview.SKIP
    assert policy.first_join is None
    assert policy.approval is Approval.ENABLED
    assert policy.endorsement_key.trust is TrustMode.REGISTERED
    assert policy.pcrs.selection == {"sha256": (0, 1, 2, 3, 4, 5, 6, 7)}
    assert policy.pcrs.mode is PcrMode.RECORD
    assert policy.certificate.lifetime == timedelta(days=7)
    assert policy.bootstrap_groups == {"system:bootstrappers"}
    assert policy.auto_approve_bindings is AutoApproveBindings.REMOVE_WHEN_ATTESTED
    assert policy.versions == ("v1",)
    assert policy.attestation_key.schemes == {"ecdsa-p256-sha256", "rsassa-2048-sha256"}
    assert policy.name_reuse is NameReuse.AFTER_MACHINE
    assert policy.serving.builtin is KubeletServingMode.APPROVE
    assert not policy.node_names.machine_name
    assert not policy.serving.node_ref_fallback
    assert policy.event_log is None


def test_every_setting_is_loaded() -> None:
    a, b = bytes.fromhex(A), bytes.fromhex(B)
    key = require_supported_key(load_pem_public_key(VENDOR_KEY.encode()))
    assert only(**EVERY_SETTING) == Policy(
        name="default",
        clusters=ClusterSelector(
            namespaces=frozenset({"team-a", "team-b"}), match_labels={"stage": "test"}
        ),
        bootstrap_groups=frozenset({"joiners"}),
        endorsement_key=EndorsementKeyRules(
            trust=TrustMode.REGISTERED_AND_CERTIFIED,
            platform=PlatformRules(
                type="aws",
                credentials_file="/etc/signer/aws/team-a",
                locations=frozenset({"eu-central-1", "eu-west-1"}),
            ),
            certificate_authorities=("/etc/signer/authorities",),
            certificate_revocation_lists=("/etc/signer/lists",),
            allow_certificates_without_usage=True,
        ),
        attestation_key=AttestationKeyRules(
            schemes=frozenset({"ecdsa-p384-sha384", "rsapss-3072-sha256"})
        ),
        pcrs=PcrRules(
            selection={"sha256": (4, 7, 11, 12), "sha384": (0,)},
            mode=PcrMode.ENFORCE,
            allowed={
                "sha256": {4: frozenset({a, b}), 7: frozenset({a})},
                "sha384": {0: frozenset({b"\xcc" * 48})},
            },
            variants=(
                PcrVariant(
                    match_labels={"pool": "edge"},
                    allowed={
                        "sha256": {4: frozenset({b}), 7: frozenset({b})},
                        "sha384": {0: frozenset({b"\xdd" * 48})},
                    },
                ),
            ),
            until={
                b: datetime(2026, 12, 31, tzinfo=UTC),
                b"\xdd" * 48: datetime(2027, 1, 1, tzinfo=UTC),
            },
            signed_by=(
                PcrSignatureRules(
                    keys={fingerprint(key): key},
                    pcrs={"sha256": (11, 12)},
                    revoked=frozenset({a, b}),
                ),
            ),
        ),
        event_log=EventLogRules(
            secure_boot=True,
            platform_keys=frozenset({a}),
            signature_databases=frozenset({b}),
            boot_loaders=frozenset({a, b"\xee" * 48}),
        ),
        node_names=NodeNameRules(machine_name=True),
        approval=Approval.DISABLED,
        first_join=FirstJoinRules(within=timedelta(hours=2)),
        certificate=CertificateRules(
            lifetime=timedelta(hours=1, minutes=30), allow_shared_authority=True
        ),
        name_reuse=NameReuse.AFTER_CERTIFICATE,
        renewals=RenewalRules(
            unknown_credential=UnknownCredential.DENY,
            taint_unattested=True,
        ),
        auto_approve_bindings=AutoApproveBindings.WAIT,
        node_labels=NodeLabels.ENABLED,
        access_review=AccessReview.REQUIRE,
        serving=ServingRules(builtin=KubeletServingMode.APPROVE, node_ref_fallback=True),
    )


@pytest.mark.parametrize(
    ("selection", "signed", "allowed"),
    [([7], [11], {7, 12}), ([7, 12], [11], {7, 12}), ([7], [11, 12], {7}), ([0], [4], {0})],
    ids=["by default", "selected", "signed", "PCR 11 is not signed"],
)
def test_pcr_12_must_be_zero_unless_the_policy_says_otherwise(
    selection: list[int], signed: list[int], allowed: set[int]
) -> None:
    pcrs = only(**signed_by(selection=selection, pcrs={"sha256": signed})).pcrs
    assert pcrs.allowed["sha256"].keys() == allowed
    assert set(pcrs.selection["sha256"]) == allowed | set(signed)
    is_default = 12 in allowed - set(selection)
    assert (pcrs.allowed["sha256"].get(12) == frozenset({bytes(32)})) == is_default


def test_variants_make_the_default_values_optional() -> None:
    """A Machine that matches no variant then has no allowed value, so it is refused."""
    variant = {"machineSelector": {"matchLabels": {"a": "b"}}, "allowed": {"sha256": {"7": [A]}}}
    pcrs = {"selection": {"sha256": [7]}, "mode": "Enforce", "variants": [variant]}
    policy = only(pcrs=pcrs)
    assert policy.pcrs.allowed == {}
    assert [v.match_labels for v in policy.pcrs.variants] == [{"a": "b"}]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1h", 3600), ("60m", 3600), ("3600s", 3600), ("1h1s", 3601), ("1h1m1s", 3661)],
)
def test_lifetimes_of_an_hour_and_more_are_accepted(text: str, seconds: int) -> None:
    lifetime = only(certificate={"lifetime": text}).certificate.lifetime
    assert lifetime == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("Alarm", AutoApproveBindings.ALARM),
        ("Remove", AutoApproveBindings.REMOVE),
        ("RemoveWhenAttested", AutoApproveBindings.REMOVE_WHEN_ATTESTED),
        ("Wait", AutoApproveBindings.WAIT),
    ],
)
def test_each_way_to_handle_bindings_is_loaded(text: str, choice: AutoApproveBindings) -> None:
    assert only(autoApproveBindings=text).auto_approve_bindings is choice


def test_requests_to_the_builtin_signer_can_be_ignored() -> None:
    assert only(serving={"builtin": "Ignore"}).serving.builtin is KubeletServingMode.IGNORE


def test_every_attestation_key_scheme_is_accepted() -> None:
    """Scheme, size or curve, and hash are independent: real TPMs sign with SHA-384 on P-256."""
    kinds = [
        *product(("ecdsa",), ("p256", "p384"), ("sha256", "sha384")),
        *product(("rsassa", "rsapss"), ("2048", "3072", "4096"), ("sha256", "sha384")),
    ]
    schemes = {"-".join(kind) for kind in kinds}
    listed = only(attestationKey={"schemes": sorted(schemes)}).attestation_key.schemes
    assert listed == schemes >= AK_KINDS.keys()


def test_a_cluster_gets_its_own_policy_or_the_default_one() -> None:
    """Namespace and name must both match."""
    own = document("own", clusterRef={"namespace": HOME.namespace, "name": HOME.name})
    policies = load(own, document("default"))
    assert policies.for_cluster(HOME, {}).name == "own"
    assert policies.for_cluster(ABROAD, {}).name == "default"
    assert policies.for_cluster(ClusterKey(namespace="other", name=HOME.name), {}).name == "default"
    assert [p.name for p in policies.accepted] == ["own", "default"]


SELECTOR = {"namespaces": [HOME.namespace, "n"], "matchLabels": {"stage": "test"}}


@pytest.mark.parametrize(
    ("key", "labels", "name"),
    [
        (HOME, {"stage": "test", "more": "x"}, "selected"),
        (HOME, {"stage": "production"}, "default"),
        (HOME, {}, "default"),
        (ClusterKey(namespace="other", name="blue"), {"stage": "test"}, "default"),
    ],
)
def test_labels_select_only_in_the_namespaces_of_the_policy(
    key: ClusterKey, labels: dict[str, str], name: str
) -> None:
    """A tenant who labels its Cluster gets no policy of other Clusters."""
    policies = load(document("selected", clusterSelector=SELECTOR), document("default"))
    assert policies.for_cluster(key, labels).name == name


def test_two_policies_for_one_cluster_are_a_conflict() -> None:
    """Also a name and a selector: the more exact one is no safe guess."""
    by_name = document("a", clusterRef={"namespace": HOME.namespace, "name": HOME.name})
    policies = load(by_name, document("b", clusterSelector={"namespaces": [HOME.namespace]}))
    with pytest.raises(PolicyConflict) as caught:
        policies.for_cluster(HOME, {})
    assert caught.value.detail == "a, b"
    defaults = PolicySet(accepted=(Policy(name="a"), Policy(name="b")))
    with pytest.raises(PolicyConflict):
        defaults.for_cluster(HOME, {})


def test_a_cluster_that_a_refused_policy_selects_gets_no_other_policy() -> None:
    spec = {"clusterRef": {"namespace": HOME.namespace, "name": HOME.name}, "trust": "None"}
    refused = load_spec("strict", spec)
    assert isinstance(refused, RefusedPolicy)
    assert refused.problems == ("spec.trust: unknown key",)
    policies = PolicySet(accepted=(Policy(name="default"),), refused=(refused,))
    with pytest.raises(PolicyInvalid) as caught:
        policies.for_cluster(HOME, {})
    assert caught.value.detail == "strict"
    assert policies.for_cluster(ABROAD, {}).name == "default"


@pytest.mark.parametrize("spec", [{"clusterref": {}}, {"clusterSelector": {}}, []], ids=str)
def test_a_refused_policy_without_a_selector_stops_only_clusters_without_a_policy(
    spec: object,
) -> None:
    """A misspelt `clusterRef` must not stop the whole fleet."""
    refused = load_spec("misspelt", spec)
    assert isinstance(refused, RefusedPolicy)
    policies = PolicySet(accepted=(Policy(name="default"),), refused=(refused,))
    assert policies.for_cluster(HOME, {}).name == "default"
    with pytest.raises(PolicyInvalid):
        PolicySet(accepted=(), refused=(refused,)).for_cluster(HOME, {})


def test_a_valid_spec_is_loaded_as_from_a_file() -> None:
    assert load_spec("default", deepcopy(EVERY_SETTING)) == only(**EVERY_SETTING)


def test_a_cluster_without_a_policy_is_refused() -> None:
    policies = load(document("own", clusterRef={"namespace": "n", "name": "c"}))
    assert [p.name for p in policies.accepted] == ["own"]
    with pytest.raises(PolicyMissing):
        policies.for_cluster(HOME, {})


@pytest.mark.parametrize(("spec", "problem"), BAD_SPECS.values(), ids=BAD_SPECS)
def test_an_invalid_spec_is_refused(spec: dict[str, object], problem: str) -> None:
    """With the path of the setting, and without any other problem."""
    assert problems(document(**spec)) == (problem,)


def test_every_entry_of_a_list_is_named() -> None:
    """A policy with three faults, two of them in one list, needed three attempts."""
    pcrs = enforced(allowed={"sha256": {"7": ["zz", A, "yy"]}})
    assert sorted(problems(document(nameReuse="Never", pcrs=pcrs))) == [
        "spec.nameReuse: must be one of AfterMachine, AfterCertificate",
        "spec.pcrs.allowed.sha256.7[0]: must be a digest in hex, of the size of the bank",
        "spec.pcrs.allowed.sha256.7[2]: must be a digest in hex, of the size of the bank",
    ]


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ({"a": True}, "must map strings to strings"),
        ({"a": "b", "c": True}, "must map strings to strings"),
        ({"a": "b", 1: "c"}, "must map strings to strings"),
        (["a"], "must be a non-empty mapping"),
        ({}, "must be a non-empty mapping"),
    ],
    ids=str,
)
def test_labels_of_a_variant_must_map_strings_to_strings(labels: object, problem: str) -> None:
    """A variant without labels would match all Machines."""
    variant = {"machineSelector": {"matchLabels": labels}, "allowed": {"sha256": {"7": [A]}}}
    (reported,) = problems(document(pcrs=enforced(variants=[variant])))
    assert reported == f"spec.pcrs.variants[0].machineSelector.matchLabels: {problem}"


SECTIONS = [
    ("clusterRef",),
    ("endorsementKey",),
    ("attestationKey",),
    ("pcrs",),
    ("pcrs", "selection"),
    ("pcrs", "allowed"),
    ("pcrs", "allowed", "sha256"),
    ("pcrs", "variants", 0),
    ("pcrs", "variants", 0, "machineSelector"),
    ("pcrs", "variants", 0, "allowed"),
    ("pcrs", "variants", 0, "allowed", "sha256"),
    ("eventLog",),
    ("nodeNames",),
    ("certificate",),
    ("serving",),
]


@pytest.mark.parametrize("path", SECTIONS, ids=str)
def test_an_unknown_key_of_any_section_is_refused(path: tuple[str | int, ...]) -> None:
    """A misspelt rule would not be in force."""
    variant = {"machineSelector": {"matchLabels": {"a": "b"}}, "allowed": {"sha256": {"7": [A]}}}
    spec: dict[str, Any] = {
        "clusterRef": {"namespace": "n", "name": "c"},
        "endorsementKey": {},
        "attestationKey": {},
        "pcrs": enforced(variants=[variant]),
        "eventLog": {"secureBoot": True},
        "nodeNames": {},
        "certificate": {},
        "serving": {},
    }
    load(document(**deepcopy(spec)))
    section = reduce(getitem, path, spec)  # type: ignore[arg-type]
    section["misspelt"] = {}
    (reported,) = problems(document(**deepcopy(spec)))
    dotted = ".".join(str(key) for key in path).replace(".0", "[0]")
    assert reported == f"spec.{dotted}.misspelt: unknown key"


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Return a changed document."""
    body = document()
    change(body)
    return body


BAD_DOCUMENTS: dict[str, tuple[object, str]] = {
    "another version": (
        changed(lambda d: d.update(apiVersion="v1")),
        "apiVersion: must be attestation.cluster.x-k8s.io/v1alpha1",
    ),
    "another kind": (
        changed(lambda d: d.update(kind="Policy")),
        "kind: must be KubeletAttestationPolicy",
    ),
    "name is missing": (
        changed(lambda d: d.update(metadata={})),
        "metadata.name: must be a non-empty string",
    ),
    "name is a number": (
        changed(lambda d: d["metadata"].update(name=1)),
        "metadata.name: must be a non-empty string",
    ),
    "spec is missing": (changed(lambda d: d.pop("spec")), "spec: is required"),
    "unknown key": (changed(lambda d: d.update(status={})), "status: unknown key"),
    "keys that are not strings": (
        changed(lambda d: d.update(spec={1: 2})),
        "spec: must have strings as keys",
    ),
}


@pytest.mark.parametrize(("bad", "problem"), BAD_DOCUMENTS.values(), ids=BAD_DOCUMENTS)
def test_an_invalid_document_is_refused(bad: object, problem: str) -> None:
    assert problems(bad) == (problem,)


def test_the_problems_of_all_documents_are_reported_at_once() -> None:
    assert problems(document("a", pcr={}), document("b", nameReuse="Never")) == (
        "spec.pcr: unknown key",
        "spec.nameReuse: must be one of AfterMachine, AfterCertificate",
        "several policies for all other clusters",
    )
    unknown = dict.fromkeys("edcba", 1)
    assert problems(document(**unknown)) == tuple(f"spec.{key}: unknown key" for key in "abcde")


def test_names_and_clusters_must_be_unique() -> None:
    reference = {"namespace": "n", "name": "c"}
    assert problems(document("a", clusterRef=reference), document("a", clusterRef=reference)) == (
        "several policies with the name a",
        "several policies for n/c",
    )


@pytest.mark.parametrize("text", ["", "---\n", "# nothing\n", "---\n---\n"])
def test_an_empty_file_is_refused(text: str) -> None:
    with pytest.raises(PolicyFileInvalid, match="must hold a policy"):
        load_policies(text)


NOT_YAML = {
    "a key twice": "spec:\n  nameReuse: AfterMachine\n  nameReuse: AfterCertificate\n",
    "an object": "!!python/object/apply:os.system [id]",
    "an unclosed list": "[1, ",
    "nested too deeply": "[" * 600,
    "a NUL character": "\0",
}


@pytest.mark.parametrize("text", NOT_YAML.values(), ids=NOT_YAML)
def test_invalid_yaml_is_refused(text: str) -> None:
    """Of two equal keys PyYAML would keep the last one; tags of Python objects would run code."""
    with pytest.raises(PolicyFileInvalid, match="not YAML"):
        load_policies(text)


@pytest.mark.parametrize("document", ["word", ["a list"], 3])
def test_a_document_must_be_a_mapping(document: object) -> None:
    assert problems(document)[0] == "must be a mapping"
