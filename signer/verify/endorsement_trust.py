"""Decides whether the endorsement key is trusted for this Machine, and on what basis (E2).

A record, which an operator writes, says which Machine has the key. If the key has no record and the
policy names a platform, the answer of the platform counts as a record. A certificate says only that
the TPM is genuine, and a first use says nothing. Without a record, a key is accepted when it
already has the claim, or when it makes the first claim under safe conditions. Source:
docs/protocol.md section 5, "E2, policies".
"""

from collections.abc import Sequence

from signer.errors import (
    EndorsementKeyMismatch,
    EndorsementKeyNotRegistered,
    EndorsementKeyRecordInvalid,
    OperatorActionRequired,
)
from signer.model import Inventory, Machine, TrustBasis
from signer.verify.claims import is_complete_claim
from signer.verify.context import VerificationContext
from signer.verify.endorsement_key import EndorsementKey
from signer.verify.machine import VerifiedMachine
from signer.verify.registered_keys import is_name_registered_to_other_key, registered_keys
from signer.verify.request import (
    BOOTSTRAP_USER_PREFIX,
    ENTRY_USER,
    BootstrapRequester,
    Requester,
)
from signer.verify.x509.endorsement_certificate import verify_endorsement_certificate


def verify_endorsement_trust(
    key: EndorsementKey,
    certificates: Sequence[bytes],
    verified: VerifiedMachine,
    requester: Requester,
    context: VerificationContext,
) -> TrustBasis:
    """Return the basis on which the policy trusts this key for this Machine.

    Raises:
        EndorsementKeyMismatch: another key is on record, for the Machine or for the node name.
        EndorsementKeyNotRegistered: no key is on record, and the policy requires a record.
        EndorsementKeyRecordInvalid: a record cannot be read, so it may name this key.
        PlatformUnavailable, PlatformQueryFailed, PlatformLocationNotAllowed, PlatformAnswerPending:
            the platform may know this key, and has not answered.
        Denied: the certificate that the policy requires fails, with its reason.
        NodeRefMismatch, OperatorActionRequired: a first claim without a record is not safe here.

    """
    inventory, trust = context.inventory, context.policy.trust
    _require_name_not_registered_to_others(key, verified, inventory)
    on_record = _is_on_record(key, verified, inventory) or _is_key_of_platform(
        key, verified.machine, context
    )
    if trust.needs_record and not on_record:
        raise EndorsementKeyNotRegistered("no endorsement key is on record for this Machine")
    if trust.needs_certificate:
        verify_endorsement_certificate(
            certificates,
            key.public_key,
            anchors=context.anchors,
            now=context.now,
            allow_without_usage=context.policy.allow_certificates_without_usage,
        )
    if on_record:
        return TrustBasis.RECORD
    if not _has_claim(key, verified, inventory):
        _require_safe_first_claim(verified, requester, inventory)
    return TrustBasis.CERTIFICATE if trust.needs_certificate else TrustBasis.FIRST_USE


def _require_name_not_registered_to_others(
    key: EndorsementKey, verified: VerifiedMachine, inventory: Inventory
) -> None:
    """Refuse a first claim to a name that operators registered for another TPM."""
    machine, node_name = verified.machine, verified.node_name
    registered_to_other = is_name_registered_to_other_key(key.name, machine, node_name, inventory)
    if registered_to_other and not _has_claim(key, verified, inventory):
        raise EndorsementKeyMismatch("another endorsement key is on record for this node name")


def _is_on_record(key: EndorsementKey, verified: VerifiedMachine, inventory: Inventory) -> bool:
    """Return whether the key is on record; refuse it when only other keys are.

    A record that cannot be read may name this key or another one: it counts as neither.
    """
    machine = verified.machine
    registered = registered_keys(machine, verified.node_name, inventory)
    if key.name in registered:
        return True
    if machine.registered_keys_error is not None:
        raise EndorsementKeyRecordInvalid(
            "the endorsement key record of this Machine cannot be read",
            detail=machine.registered_keys_error,
        )
    if registered:
        raise EndorsementKeyMismatch("another endorsement key is on record for this Machine")
    return False


def _is_key_of_platform(
    key: EndorsementKey, machine: Machine, context: VerificationContext
) -> bool:
    """Return whether the platform gives this key; refuse it when the platform gives other keys.

    Called for a Machine without any record: a registration by an operator needs no platform, and no
    platform can contradict it.
    """
    rules = context.policy.platform
    if rules is None:
        return False
    namespace = context.inventory.cluster().key.namespace
    keys = context.platforms.keys(namespace, machine.provider_id, rules, expected=key.name)
    if keys and key.name not in keys:
        raise EndorsementKeyMismatch("the platform gives another endorsement key for this Machine")
    return key.name in keys


def _has_claim(key: EndorsementKey, verified: VerifiedMachine, inventory: Inventory) -> bool:
    """Return whether this key already has the complete claim to this node name and provider ID."""
    claim = inventory.endorsement_key(key.name)
    node = inventory.attested_node(verified.node_name)
    provider_id = verified.machine.provider_id
    return (
        claim is not None
        and node is not None
        and claim.held_by is not None
        and is_complete_claim(claim, node)
        and claim.held_by.provider_id == node.provider_id == provider_id
    )


def _require_safe_first_claim(
    verified: VerifiedMachine, requester: Requester, inventory: Inventory
) -> None:
    """Without a record, accept the first key that comes, but only for a fresh Machine."""
    if verified.alarms:
        raise verified.alarms[0]
    machine = verified.machine
    if not isinstance(requester, BootstrapRequester):
        raise OperatorActionRequired("a first claim without a record needs a bootstrap credential")
    if machine.node_ref is not None or inventory.node(verified.node_name) is not None:
        raise OperatorActionRequired("the Machine has a Node already: register its endorsement key")
    if requester.username == ENTRY_USER:
        raise OperatorActionRequired(
            "a first claim without a record needs another bootstrap credential than the cluster's"
            " entry credential"
        )
    _require_own_token(machine, requester)


def _require_own_token(machine: Machine, requester: BootstrapRequester) -> None:
    """Where the Machine's bootstrap configuration owns a token, accept no other token."""
    token = machine.bootstrap_token_id
    if token is not None and requester.username != BOOTSTRAP_USER_PREFIX + token:
        raise OperatorActionRequired(
            "the bootstrap token is not the one that was made for this Machine"
        )
