"""How a command of this room changes a policy: it shows the edit, asks, and writes or prints it."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from common.formats.yaml_text import to_yaml
from signer.kinds.policy import POLICIES
from signer.kube.transport.client import MAY_EXIST, MAY_HAVE_CHANGED
from signer.operator_cli.commands.pcrs.reviews import Body, StoredPolicy
from signer.operator_cli.errors import InputInvalid, Rejected
from signer.operator_cli.session import Session
from signer.policy.changes.boot_review import Group
from signer.policy.changes.edits import EditInvalid, ReviewedPolicy, Spec, describe_edit

NO_ANNOTATIONS: Final[Mapping[str, str]] = MappingProxyType({})
_OF_KUBECTL: Final = "kubectl.kubernetes.io/last-applied-configuration"


def require_later(session: Session) -> None:
    """Raise `InputInvalid` if the day of `--until` has passed."""
    until = session.arguments.until
    if until is not None and until <= session.now:
        raise InputInvalid("--until must be today or later")


def edited(stored: StoredPolicy, spec: Spec) -> ReviewedPolicy:
    """Return the policy with another spec. Raises `Rejected`: it would be invalid."""
    try:
        return ReviewedPolicy.of(stored.name, spec)
    except EditInvalid as error:
        raise Rejected(f"KubeletAttestationPolicy {stored.name}: {error}") from error


def require_whole(session: Session, groups: Sequence[Group]) -> str:
    """Return how a script confirms groups. Raises `InputInvalid`: it names others with `--yes`."""
    whole = " ".join(group.digest for group in groups)
    if session.arguments.yes and not {*whole.split()} <= {*session.arguments.targets}:
        raise InputInvalid(
            "--yes must follow each group with all 64 digits",
            hint=f"compare the values first; then name {whole}",
        )
    return f"add --yes, and name {whole}, to confirm"


def policy_in_the_way(name: str) -> Rejected:
    """Return the error about an object that is no valid policy, and is in the way of a new one."""
    return Rejected(
        f"KubeletAttestationPolicy {name} must be valid, or must not exist",
        hint="run the command `policy check` for its problems",
    )


def change_policy(  # noqa: PLR0913 - each by name
    session: Session,
    stored: StoredPolicy,
    spec: Spec,
    consequence: str,
    *,
    hint: str = "add --yes to confirm",
    annotations: Mapping[str, str] = NO_ANNOTATIONS,
) -> None:
    """Show the edit and its consequence, and ask; then write the policy, if it has not changed.

    With `--dry-run=client` the policy is printed instead. `hint` says how a script confirms. Raises
    `CommandError`.
    """
    edited(stored, spec)
    lines = "".join(f"  {line}\n" for line in describe_edit(stored.reviewed.spec, spec))
    session.confirm(f"{lines}{consequence}", hint=hint)
    if session.arguments.dry_run == "client":
        session.stdout.write(to_yaml(_manifest(stored.body, spec, annotations)))
    elif "resourceVersion" in stored.body["metadata"]:
        _patch(session, stored, spec, annotations)
        session.report(f"KubeletAttestationPolicy {stored.name}: changed")
    else:
        _create(session, stored, spec)
        session.report(f"KubeletAttestationPolicy {stored.name}: created")


def _manifest(body: Body, spec: Spec, annotations: Mapping[str, str]) -> Mapping[str, Any]:
    """Return a policy as an operator keeps it in Git.

    With a resourceVersion, each apply after the first one would be a conflict.
    """
    of_object = body["metadata"]
    kept = {**of_object.get("annotations", {}), **annotations}
    kept.pop(_OF_KUBECTL, None)
    metadata = {k: of_object[k] for k in ("name", "labels") if k in of_object}
    return POLICIES.manifest(metadata=metadata | ({"annotations": kept} if kept else {}), spec=spec)


def _create(session: Session, stored: StoredPolicy, spec: Spec) -> None:
    """Create the policy. Raises `Rejected`."""
    body = _manifest(stored.body, spec, NO_ANNOTATIONS)
    if not session.api.create(POLICIES.collection_path(), body, accepted=MAY_EXIST).succeeded:
        raise policy_in_the_way(stored.name)


def _patch(
    session: Session, stored: StoredPolicy, spec: Spec, annotations: Mapping[str, str]
) -> None:
    """Write the rules on the boot, if the policy is still the one that was read.

    Raises `Rejected`.
    """
    changed = {key: spec[key] for key in ("pcrs", "eventLog") if key in spec}
    if "pcrs" in changed:
        changed["pcrs"] = {"until": None, **changed["pcrs"]}  # a merge patch removes what is null
    metadata: dict[str, Any] = {"resourceVersion": stored.body["metadata"]["resourceVersion"]}
    if annotations:
        metadata["annotations"] = annotations
    if not session.api.merge_patch(
        POLICIES.object_path(stored.name),
        {"metadata": metadata, "spec": changed},
        accepted=MAY_HAVE_CHANGED,
    ).succeeded:
        raise Rejected(
            f"KubeletAttestationPolicy {stored.name} has changed meanwhile",
            hint="run the command `pcrs review`, and then this command again",
        )
