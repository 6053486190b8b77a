"""Decides which key of the TPM is trusted for this Machine, and on what basis (E2).

A record, which an operator writes, says which Machine has the key. If the key has no record and the
policy names a platform, the answer of the platform counts as a record. So does a name of the
machine in the endorsement certificate, where the policy lists such names, and a quote that names
the virtual machine, where a platform certifies the attestation key. Any other certificate says only
that the TPM is genuine, and a first use says nothing. Without a record or a name, a key is accepted
when it already has the claim, or when it makes the first claim under safe conditions.

What is trusted is also what is claimed, banned, released and replaced. That is the endorsement key,
except where a quote names the virtual machine: then the certified attestation key is trusted, and
it vouches for as many endorsement keys as its TPM can make.

Source: docs/protocol.md section 5, "E2, policies".
"""

from dataclasses import dataclass

from common.evidence import TpmKeys
from signer.errors import (
    EndorsementCertificateUnnamed,
    EndorsementKeyMismatch,
    EndorsementKeyNotRegistered,
    EndorsementKeyRegistrationInvalid,
    OperatorActionRequired,
)
from signer.kinds.endorsement_key import TrustBasis
from signer.kinds.machine import Machine
from signer.seams import Inventory, PlatformAnswer
from signer.verify.attestation.attestation_key import AttestationKey
from signer.verify.attestation.endorsement_key import EndorsementKey
from signer.verify.attestation.quoted_pcrs import Pcrs
from signer.verify.context import VerificationContext
from signer.verify.machines.attestation_certificate import (
    require_created_endorsement_key,
    require_quote_of_vm,
    verify_attestation_certificate,
)
from signer.verify.machines.claims import is_complete_claim
from signer.verify.machines.machine import VerifiedMachine
from signer.verify.machines.registered_keys import is_name_registered_to_other_key, registered_keys
from signer.verify.requests.request import (
    BOOTSTRAP_USER_PREFIX,
    ENTRY_USER,
    BootstrapRequester,
    Requester,
)
from signer.verify.x509.endorsement_certificate import verify_endorsement_certificate
from signer.verify.x509.fields import CertificateFields
from signer.verify.x509.machine_names import verify_machine_name


@dataclass(frozen=True, slots=True, kw_only=True)
class PresentedKeys:
    """The keys of a TPM after A1 and E1, and what speaks for them."""

    endorsement: EndorsementKey
    attestation: AttestationKey
    evidence: TpmKeys
    pcrs: Pcrs | None
    """Values that the attestation key quoted (Q3); `None` on an offer, which has no quote yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Which key the policy trusts for a Machine; only `verify_endorsement_trust` creates one."""

    basis: TrustBasis
    key: EndorsementKey | AttestationKey
    """The trusted key. Its EndorsementKey object is claimed, banned and replaced."""
    names: frozenset[str]
    """The EndorsementKey objects of this key, and of other keys of the same TPM that are known.

    A ban or a release of any one counts, and so does a claim that another node has by it.
    """


def verify_endorsement_trust(
    keys: PresentedKeys,
    verified: VerifiedMachine,
    requester: Requester,
    context: VerificationContext,
) -> Trust:
    """Return which key the policy trusts for this Machine, and on what basis.

    Raises:
        EndorsementKeyMismatch: another key is registered, for the Machine or for the node name.
        EndorsementKeyNotRegistered: no key is registered, and the policy requires a record.
        EndorsementCertificateUnnamed: the policy accepts only certificates that name the Machine.
        EndorsementKeyRegistrationInvalid: a record cannot be read, so it may name this key.
        PlatformUnavailable, PlatformQueryFailed, PlatformLocationNotAllowed, PlatformAnswerPending:
            the platform may know this key, and has not answered.
        Denied: a certificate fails, or certificate or quote name another machine.
        NodeRefMismatch, OperatorActionRequired: a first claim without a record is not safe here.

    """
    inventory, rules, key = context.inventory, context.policy.endorsement_key, keys.endorsement
    trust, names = rules.trust, frozenset({key.name, keys.attestation.name})
    _require_name_not_registered_to_others(keys, verified, inventory)
    registered = _is_registered(key, verified, inventory)
    if not registered:
        answer = _answer_of_platform(key, verified.machine, context)
        if _is_named_by_quote(keys, answer.vm_id, context):
            return Trust(basis=TrustBasis.CERTIFICATE_NAME, key=keys.attestation, names=names)
        registered = _is_key_of_platform(key, answer)
        names |= answer.endorsement_keys
    if trust.needs_record and not registered:
        raise EndorsementKeyNotRegistered("no endorsement key is registered for this Machine")
    leaf = None
    if trust.needs_certificate:
        leaf = verify_endorsement_certificate(
            keys.evidence.ek_certificates,
            key.public_key,
            anchors=context.anchors,
            now=context.now,
            allow_without_usage=rules.allow_certificates_without_usage,
        )
    basis = TrustBasis.REGISTERED
    if not registered:
        basis = _basis_without_record(key, leaf, verified, requester, context)
    return Trust(basis=basis, key=key, names=names)


def _basis_without_record(
    key: EndorsementKey,
    leaf: CertificateFields | None,
    verified: VerifiedMachine,
    requester: Requester,
    context: VerificationContext,
) -> TrustBasis:
    """Return the basis for a key that `leaf` certifies, or for the first one that comes."""
    rules, inventory = context.policy.endorsement_key.certificate_names, context.inventory
    if leaf is not None and verify_machine_name(leaf, verified.machine.provider_id, rules):
        return TrustBasis.CERTIFICATE_NAME
    if rules.is_name_required:
        raise EndorsementCertificateUnnamed(
            "the endorsement certificate names no machine: register the key, or set"
            " certificateNames.unnamed to Accept"
        )
    if not _has_claim(frozenset({key.name}), verified, inventory):
        _require_safe_first_claim(verified, requester, inventory)
    return TrustBasis.FIRST_USE if leaf is None else TrustBasis.CERTIFICATE


def _require_name_not_registered_to_others(
    keys: PresentedKeys, verified: VerifiedMachine, inventory: Inventory
) -> None:
    """Refuse a first claim to a name that operators registered for another TPM."""
    machine, node_name, key = verified.machine, verified.node_name, keys.endorsement
    presented = frozenset({key.name, keys.attestation.name})
    registered_to_other = is_name_registered_to_other_key(key.name, machine, node_name, inventory)
    if registered_to_other and not _has_claim(presented, verified, inventory):
        raise EndorsementKeyMismatch("another endorsement key is registered for this node name")


def _is_registered(key: EndorsementKey, verified: VerifiedMachine, inventory: Inventory) -> bool:
    """Return whether the key is registered; refuse it when only other keys are.

    A record that cannot be read may name this key or another one: it counts as neither.
    """
    machine = verified.machine
    registered = registered_keys(machine, verified.node_name, inventory)
    if key.name in registered:
        return True
    if machine.registered_keys_error is not None:
        raise EndorsementKeyRegistrationInvalid(
            "the endorsement key record of this Machine cannot be read",
            detail=machine.registered_keys_error,
        )
    if registered:
        raise EndorsementKeyMismatch("another endorsement key is registered for this Machine")
    return False


def _answer_of_platform(
    key: EndorsementKey, machine: Machine, context: VerificationContext
) -> PlatformAnswer:
    """Return what the platform says about the Machine, or the annotation with its VM ID.

    Called for a Machine without any record: a registration by an operator needs no platform, and no
    platform can contradict it. The same holds for the annotation.
    """
    rules = context.policy.endorsement_key.platform
    if machine.vm_id is not None or rules is None:
        return PlatformAnswer(vm_id=machine.vm_id)
    namespace = context.inventory.cluster().key.namespace
    return context.platforms.answer(namespace, machine.provider_id, rules, expected=key.name)


def _is_key_of_platform(key: EndorsementKey, answer: PlatformAnswer) -> bool:
    """Return whether the platform gives this key; refuse it when the platform gives other keys."""
    if answer.endorsement_keys and key.name not in answer.endorsement_keys:
        raise EndorsementKeyMismatch("the platform gives another endorsement key for this Machine")
    return key.name in answer.endorsement_keys


def _is_named_by_quote(
    keys: PresentedKeys, vm_id: str | None, context: VerificationContext
) -> bool:
    """Return whether the platform certified the attestation key, and its quote names the machine.

    On an offer, whether such a quote can come: the answer has to show it.
    """
    if vm_id is None:
        return False
    if verify_attestation_certificate(keys.attestation, keys.evidence, context) is None:
        return False
    creation = keys.evidence.ek_creation
    require_created_endorsement_key(keys.attestation, keys.endorsement, creation)
    if keys.pcrs is not None:
        require_quote_of_vm(keys.pcrs, vm_id)
    return True


def _has_claim(names: frozenset[str], verified: VerifiedMachine, inventory: Inventory) -> bool:
    """Return whether one of these keys has the complete claim to this node name and Machine."""
    node = inventory.attested_node(verified.node_name)
    if node is None or node.endorsement_key not in names:
        return False
    claim = inventory.endorsement_key(node.endorsement_key)
    provider_id = verified.machine.provider_id
    return (
        claim is not None
        and claim.held_by is not None
        and is_complete_claim(claim, node)
        and claim.held_by.provider_id == node.provider_id == provider_id
    )


def _require_safe_first_claim(
    verified: VerifiedMachine, requester: Requester, inventory: Inventory
) -> None:
    """Without a record, accept the first key that comes, but only for a fresh Machine."""
    if verified.alarms:  # (M6)
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
