"""Whether the endorsement key is trusted for this Machine, and on what basis (E2).

A record says whose TPM it is. A certificate only says that it is some TPM, and a first use says
nothing: without a record, both count once a claim exists, and make the first claim only where
nothing speaks against it. Source: docs/protocol.md section 5, "E2, policies".
"""

from collections.abc import Sequence
from datetime import datetime

from signer.errors import (
    EndorsementKeyMismatch,
    EndorsementKeyNotRegistered,
    EndorsementKeyRecordInvalid,
    OperatorActionRequired,
)
from signer.model import Inventory, Machine, TrustBasis
from signer.policy import Policy
from signer.verify.claims import is_complete_claim
from signer.verify.endorsement_key import EndorsementKey
from signer.verify.machine import VerifiedMachine
from signer.verify.registered_keys import is_name_registered_to_other_key, registered_keys
from signer.verify.request import BOOTSTRAP_USER_PREFIX, BootstrapRequester, Requester
from signer.verify.x509.endorsement_certificate import verify_endorsement_certificate
from signer.verify.x509.trust_anchors import TrustAnchors


def verify_endorsement_trust(  # noqa: PLR0913 - each by name, and each a thing of its own
    key: EndorsementKey,
    certificates: Sequence[bytes],
    verified: VerifiedMachine,
    *,
    requester: Requester,
    records: Inventory,
    policy: Policy,
    anchors: TrustAnchors,
    now: datetime,
) -> TrustBasis:
    """Return the basis on which the policy trusts this key for this Machine.

    Raises:
        EndorsementKeyMismatch: another key is on record, for the Machine or for the node name.
        EndorsementKeyNotRegistered: none is, and the policy asks for one.
        EndorsementKeyRecordInvalid: a record cannot be read, so nobody knows.
        Denied: the certificate that the policy asks for, with its reason.
        NodeRefMismatch, OperatorActionRequired: a first claim without a record is not safe here.

    """
    _require_name_of_nobody_else(key, verified, records)
    on_record = _is_on_record(key, verified, records)
    if policy.trust.needs_record and not on_record:
        raise EndorsementKeyNotRegistered("no endorsement key is on record for this Machine")
    if policy.trust.needs_certificate:
        verify_endorsement_certificate(
            certificates,
            key.public_key,
            anchors=anchors,
            now=now,
            allow_without_usage=policy.allow_certificates_without_usage,
        )
    if on_record:
        return TrustBasis.RECORD
    if not _has_claim(key, verified, records):
        _require_safe_first_claim(verified, requester, records)
    return TrustBasis.CERTIFICATE if policy.trust.needs_certificate else TrustBasis.FIRST_USE


def _require_name_of_nobody_else(
    key: EndorsementKey, verified: VerifiedMachine, records: Inventory
) -> None:
    """Let nobody make the first claim to a name that operators gave to another TPM."""
    machine, node_name = verified.machine, verified.node_name
    others = is_name_registered_to_other_key(key.name, machine, node_name, records)
    if others and not _has_claim(key, verified, records):
        raise EndorsementKeyMismatch("another endorsement key is on record for this node name")


def _is_on_record(key: EndorsementKey, verified: VerifiedMachine, records: Inventory) -> bool:
    """Tell whether the key is on record; another one's record speaks against it in every policy.

    What cannot be read might name this key, or another one: neither yes nor no.
    """
    machine = verified.machine
    names = registered_keys(machine, verified.node_name, records)
    if key.name in names:
        return True
    if machine.registered_keys_error is not None:
        raise EndorsementKeyRecordInvalid(
            "the endorsement key record of this Machine cannot be read",
            detail=machine.registered_keys_error,
        )
    if names:
        raise EndorsementKeyMismatch("another endorsement key is on record for this Machine")
    return False


def _has_claim(key: EndorsementKey, verified: VerifiedMachine, records: Inventory) -> bool:
    """Tell whether this key already has this very Machine and name."""
    claim = records.endorsement_key(key.name)
    node = records.attested_node(verified.node_name)
    provider_id = verified.machine.provider_id
    return (
        claim is not None
        and node is not None
        and claim.held_by is not None
        and is_complete_claim(claim, node)
        and claim.held_by.provider_id == node.provider_id == provider_id
    )


def _require_safe_first_claim(
    verified: VerifiedMachine, requester: Requester, records: Inventory
) -> None:
    """Without a record, the first to come is believed: only where it can be no latecomer."""
    if verified.alarms:
        raise verified.alarms[0]
    machine = verified.machine
    if not isinstance(requester, BootstrapRequester):
        raise OperatorActionRequired("a first claim without a record needs a bootstrap credential")
    if machine.node_ref is not None or records.node(verified.node_name) is not None:
        raise OperatorActionRequired(
            "the Machine has a Node already: its endorsement key has to be recorded"
        )
    _require_own_token(machine, requester)


def _require_own_token(machine: Machine, requester: BootstrapRequester) -> None:
    """Where the Machine's bootstrap configuration owns a token, another one is no credential."""
    token = machine.bootstrap_token_id
    if token is not None and requester.username != BOOTSTRAP_USER_PREFIX + token:
        raise OperatorActionRequired(
            "the bootstrap token is not the one that was made for this Machine"
        )
