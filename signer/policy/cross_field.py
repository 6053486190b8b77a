"""The rules of policies across fields: one row for keys that another field makes wrong, or needs.

A key that has no meaning beside the others is refused: its rule would not be in force.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from signer.policy.policy import KubeletServingMode, PcrMode, Policy, PolicyMode, TrustMode
from signer.policy.section import Section


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    keys: tuple[str, ...]
    """Paths in `spec`."""
    when: Callable[[Policy], bool]
    why: Callable[[Policy], str]
    is_required: bool = False
    """Whether the keys must be present then, and not absent."""


def _trust(policy: Policy) -> str:
    return f"with trust {policy.endorsement_key.trust.value}"


def _pcr_mode(policy: Policy) -> str:
    return f"in mode {policy.pcrs.mode.value}"


_ROWS: Final = (
    _Row(
        keys=("clusterSelector",),
        when=lambda p: p.clusters is not None and p.clusters.cluster is not None,
        why=lambda _: "with clusterRef",
    ),
    _Row(
        keys=(
            *("endorsementKey", "attestationKey", "pcrs", "eventLog", "bootstrapGroups"),
            *("firstJoin", "certificate", "nameReuse", "renewals", "autoApproveBindings"),
            *("nodeLabels", "serving", "minimumVersion"),
        ),
        when=lambda p: p.mode is PolicyMode.SERVING_ONLY,
        why=lambda _: "with mode ServingOnly",
    ),
    _Row(
        keys=("endorsementKey.certificateAuthorities",),
        when=lambda p: p.endorsement_key.trust.needs_certificate,
        why=_trust,
        is_required=True,
    ),
    _Row(
        keys=(
            "endorsementKey.certificateAuthorities",
            "endorsementKey.certificateRevocationLists",
            "endorsementKey.allowCertificatesWithoutUsage",
        ),
        when=lambda p: not p.endorsement_key.trust.needs_certificate,
        why=_trust,
    ),
    _Row(
        keys=("endorsementKey.platform",),
        when=lambda p: not p.endorsement_key.trust.needs_record,
        why=_trust,
    ),
    _Row(
        keys=("endorsementKey.certificateNames",),
        when=lambda p: p.endorsement_key.trust is not TrustMode.CERTIFIED,
        why=_trust,
    ),
    _Row(
        keys=("attestationKey.certificateAuthorities",),
        when=lambda p: p.endorsement_key.trust is not TrustMode.REGISTERED,
        why=_trust,
    ),
    _Row(
        keys=("pcrs.allowed", "pcrs.until", "pcrs.variants", "pcrs.signedBy"),
        when=lambda p: p.pcrs.mode is PcrMode.RECORD,
        why=_pcr_mode,
    ),
    _Row(
        keys=("pcrs.allowed",),
        when=lambda p: p.pcrs.mode is not PcrMode.RECORD and not p.pcrs.variants,
        why=_pcr_mode,
        is_required=True,
    ),
    _Row(
        keys=("serving.nodeRefFallback",),
        when=lambda p: (
            p.serving.node_ref_fallback and p.serving.builtin is KubeletServingMode.IGNORE
        ),
        why=lambda _: "with builtin Ignore",
    ),
)


def add_cross_field_problems(policy: Policy, spec: Section) -> None:
    """Add the problems of a policy that was read from `spec`, one for each key and row."""
    for row in _ROWS:
        if not row.when(policy):
            continue
        for path in row.keys:
            if row.is_required and not spec.has(path):
                spec.add_problem(f"is required {row.why(policy)}", path)
            elif not row.is_required and spec.has(path):
                spec.add_problem(f"must be absent {row.why(policy)}", path)
