"""Replaces functions of the signer: those that need bytes, and those of the rules that are broken.

The rules of messages, annotations and approvals are broken in the modules of the model itself.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

from signer.errors import (
    EndorsementCertificateMissing,
    EndorsementCertificateOfOtherMachine,
    QuoteOfOtherMachine,
)
from signer.kinds.attested_node import AttestedNodeObject, BootCounters
from signer.kinds.cluster import ClusterKey
from signer.kinds.endorsement_key import EndorsementKeyObject, KeyHolder, TrustBasis
from signer.kinds.machine import MachineState
from signer.policy.policy import CertificateNameRules
from signer.verify import answer, claimed_answer
from signer.verify.grounds import certificate_name, first_use, ground, quote_of_vm
from signer.verify.machines import claim_writes, claims, machine
from tests.model.objects import key_name
from tests.model.rules import Rule
from tests.model.world import EkCertificate

_Attempt = claim_writes._Attempt
_holder_state = _Attempt._holder_state
_make_claims = claimed_answer.make_claims
Replacement = tuple[object, str, object]
"""A module or class, the name of a function in it, and another function."""
_BOOT: Final = BootCounters(reset_count=1, restart_count=1, firmware_version="0x0000000000000001")


@contextmanager
def running(rules: frozenset[Rule]) -> Iterator[None]:
    """Replace what an exploration with these broken rules replaces."""
    with ExitStack() as stack:
        for target, name, value in (*_REPLACED, *(each for rule in rules for each in broken(rule))):
            stack.enter_context(patch.object(target, name, value))
        yield


def broken(rule: Rule) -> Sequence[Replacement]:
    """Return what replaces the signer's functions that follow a rule."""
    return BROKEN.get(rule, ())


def _proof(_csr: object, it: Any, context: Any, _: object) -> answer._Proof:  # noqa: ANN401 - has only a key
    """Return what the TPM proves (C1 to Q4); `messages.proves` has decided that it does."""
    key = it.evidence.key
    pem = "-----BEGIN PUBLIC KEY-----"
    named: Any = SimpleNamespace(name=key_name(key), pem=pem, public_key=key, public=None)
    measurements = answer.Measurements(boot=None, alarms=())
    keys = ground.PresentedKeys(
        endorsement=named,
        attestation=named,
        evidence=it.evidence,
        pcrs=it.evidence.ek_certificates,
        context=context,
    )
    return answer._Proof(keys=keys, boot=_BOOT, pcrs={}, measurements=measurements)


def _certificate(certificate: EkCertificate | None, _: object, **__: object) -> EkCertificate:
    """Accept each certificate: only keys in TPMs have one."""
    if certificate is None:
        raise EndorsementCertificateMissing("no certificate for this key")
    return certificate


def _name(leaf: EkCertificate, provider_id: str, rules: CertificateNameRules) -> str | None:
    """Compare the names in a certificate with that of the Machine."""
    if rules == CertificateNameRules() or not leaf.provider_ids:
        return None
    if provider_id not in leaf.provider_ids:
        raise EndorsementCertificateOfOtherMachine("the certificate names another machine")
    return provider_id


def _own_name(leaf: EkCertificate, provider_id: str, rules: CertificateNameRules) -> str | None:
    return _name(leaf, provider_id, rules) if provider_id in leaf.provider_ids else None


def _certified(_: object, evidence: Any, context: Any) -> bool | None:  # noqa: ANN401 - passed on
    """Certify the attestation keys of the TPMs that the platform names, if the policy asks."""
    named = bool(evidence.ek_certificates and evidence.ek_certificates.provider_ids)
    return (context.policy.attestation_key.certificate_authorities and named) or None


def _any_key(*arguments: Any) -> bool | None:  # noqa: ANN401 - passed on
    *_, context = arguments
    return bool(context.policy.attestation_key.certificate_authorities) or None


def _quote_of_vm(quoted: EkCertificate | None, vm_id: str) -> None:
    """Compare the quoted names with the VM ID. A key outside of a TPM quotes what it likes."""
    if quoted is not None and vm_id not in quoted.provider_ids:
        raise QuoteOfOtherMachine("the quote names another machine")


def _no_name(*arguments: Any) -> None:  # noqa: ANN401 - passed on
    _name(*arguments)


_REPLACED: Final[Sequence[Replacement]] = (
    (answer, "_verify_proof", _proof),
    (ground, "verify_endorsement_certificate", _certificate),
    (certificate_name, "verify_machine_name", _name),
    (quote_of_vm, "verify_attestation_certificate", _certified),
    (quote_of_vm, "_require_created_endorsement_key", lambda *_: None),
    (quote_of_vm, "require_quote_of_vm", _quote_of_vm),
)


class _Store:
    """The API server of one attempt, with calls that a broken rule changes."""

    def __init__(self, api: Any) -> None:  # noqa: ANN401 - a ClaimStore
        self._api = api

    def __getattr__(self, method: str) -> Callable[..., Any]:
        """Return a method that the rule does not change."""
        method_of: Callable[..., Any] = getattr(self._api, method)
        return method_of


def _through(store: type[_Store]) -> Sequence[Replacement]:
    """Let each attempt use a changed API server."""
    original = _Attempt.run

    def run(
        self: _Attempt, key: EndorsementKeyObject | None, node: AttestedNodeObject | None
    ) -> claim_writes.WrittenClaim:
        api: Any = store(self.claims)
        return original(replace(self, claims=api), key, node)

    return ((_Attempt, "run", run),)


class _NoSecondWrite(_Store):
    """K3 does nothing."""

    def set_key_holder(
        self, current: EndorsementKeyObject, held_by: KeyHolder, now: datetime
    ) -> EndorsementKeyObject:
        if current.held_by == held_by:
            return current
        result: EndorsementKeyObject = self._api.set_key_holder(current, held_by, now)
        return result


class _AnyMachine(_Store):
    """Each Machine with the provider ID keeps a claim."""

    def machine_state(self, cluster: ClusterKey, provider_id: str, _: str) -> MachineState:
        result: MachineState = self._api.machine_state(cluster, provider_id, "")
        return result


class _DeletingIsGone(_Store):
    """A Machine that is being deleted keeps no claim."""

    def machine_state(self, *arguments: object) -> MachineState:
        state: MachineState = self._api.machine_state(*arguments)
        return MachineState.ABSENT if state is MachineState.DELETING else state


def _without_k3_for_complete_claims() -> Sequence[Replacement]:
    original = _Attempt.run

    def run(
        self: _Attempt, key: EndorsementKeyObject | None, node: AttestedNodeObject | None
    ) -> claim_writes.WrittenClaim:
        complete = key is not None and key.held_by is not None
        if complete and claims.is_complete_claim(key, node):
            api: Any = _NoSecondWrite(self.claims)
            self = replace(self, claims=api)
        return original(self, key, node)

    return ((_Attempt, "run", run),)


def _nothing(*_: object, **__: object) -> None:
    """Check nothing."""


def _complete(
    key: EndorsementKeyObject | None,
    node: AttestedNodeObject | None,
    **ignored: Any,  # noqa: ANN401 # fields of the key
) -> bool:
    """Return whether a claim is complete, without the bans or the releases."""
    return claims.is_complete_claim(None if key is None else key.replace(**ignored), node)


def _unreleased_state(
    self: _Attempt, key: EndorsementKeyObject, held_by: KeyHolder
) -> MachineState:
    return _holder_state(self, key.replace(released_from=()), held_by)


def _name_free(other: Any, state: Any, requested: KeyHolder) -> None:  # noqa: ANN401 - passed on
    claims.require_name_free(other, state, requested.replace(basis=TrustBasis.FIRST_USE))


def _has_other_uid(self: _Attempt, node: AttestedNodeObject) -> bool:
    return node.machine_uid not in {"", self.request.node.machine_uid}


def _named_member(verified: answer.VerifiedAnswer, *arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401 - passed on
    member = replace(verified.machine, is_pool_member=False)
    return _make_claims(replace(verified, machine=member), *arguments, **keywords)


BROKEN: Final[dict[Rule, Sequence[Replacement]]] = {
    Rule.FIRST_CLAIM_GUARDED: ((first_use, "_require_safe_first_claim", _nothing),),
    Rule.OTHER_NAME_DENIED: ((certificate_name, "verify_machine_name", _own_name),),
    Rule.KEY_CERTIFIED: ((quote_of_vm, "verify_attestation_certificate", _any_key),),
    Rule.QUOTE_NAMES_MACHINE: ((quote_of_vm, "require_quote_of_vm", lambda *_: None),),
    Rule.NAME_IS_A_RECORD: ((certificate_name, "verify_machine_name", _no_name),),
    Rule.BAN_READ_LIVE: ((claim_writes, "require_usable", _nothing),),
    Rule.BANNED_IS_DEAD: ((claim_writes, "is_complete_claim", partial(_complete, banned=False)),),
    Rule.RELEASED_IS_DEAD: (
        (_Attempt, "_holder_state", _unreleased_state),
        (claim_writes, "is_complete_claim", partial(_complete, released_from=())),
    ),
    Rule.GONE_MACHINE_FREES_NAME: ((machine, "is_claim_of", lambda *_: True),),
    Rule.GONE_MACHINE_FREES_CLAIM: _through(_AnyMachine),
    Rule.DELETED_MACHINE_KEEPS_CLAIM: _through(_DeletingIsGone),
    Rule.UID_FREES_NO_OTHER_MACHINE: ((_Attempt, "_is_former", _has_other_uid),),
    Rule.POOL_MEMBER_NAMES_NO_MACHINE: ((claimed_answer, "make_claims", _named_member),),
    Rule.OTHER_NODES_KEEP_KEY: ((_Attempt, "_require_no_other_node", _nothing),),
    Rule.LIVING_KEY_KEPT: ((claim_writes, "require_key_free", _nothing),),
    Rule.LIVING_NAME_KEPT: ((claim_writes, "require_name_free", _nothing),),
    Rule.RECORD_BEATS_NAME: ((claim_writes, "require_name_free", _name_free),),
    Rule.DEAD_CLAIMS_FREED: ((_Attempt, "_state", lambda *_: MachineState.PRESENT),),
    Rule.SECOND_WRITE: _through(_NoSecondWrite),
    Rule.SECOND_WRITE_ALWAYS: _without_k3_for_complete_claims(),
}
"""What replaces the signer's functions, for each rule that they follow."""
