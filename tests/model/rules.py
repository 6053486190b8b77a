"""The policy modes, and the rules of docs/protocol.md that a mutation can break."""

from enum import StrEnum


class Mode(StrEnum):
    """E2: what makes an endorsement key trusted."""

    REGISTERED = "Registered"
    CERTIFIED = "Certified"
    REGISTERED_AND_CERTIFIED = "RegisteredAndCertified"
    FIRST_USE = "FirstUse"

    @property
    def needs_record(self) -> bool:
        """Return whether a key that is not registered has to wait."""
        return self in (Mode.REGISTERED, Mode.REGISTERED_AND_CERTIFIED)

    @property
    def needs_certificate(self) -> bool:
        """Return whether a key that no vendor certified is refused."""
        return self in (Mode.CERTIFIED, Mode.REGISTERED_AND_CERTIFIED)


class Rule(StrEnum):
    """The rules. A model runs with some of them broken, by default none."""

    BOUND_OBJECT = "extraData holds the name of the answer's object"
    BOUND_REQUEST = "the secret holds the PKCS#10"
    BOUND_CLUSTER = "the secret holds the Cluster"
    BOUND_KEY = "the secret is opened by the endorsement key that is named, and no other"
    ONLY_ANSWERS_CLAIM = "claims are made after the quote was proved"
    ANNOTATIONS_UNREAD = "no annotation on a CSR is an input"
    APPROVED_UNREAD = "Approved is no input"
    WRONG_ANSWERS_ARE_FREE = "a wrong answer costs that answer alone"
    FIRST_CLAIM_GUARDED = "a first claim needs the Machine's own token and no Node (E2)"
    BAN_READ_LIVE = "K1 reads bans and releases in the object that it writes"
    BANNED_IS_DEAD = "the claim of a banned key is not live"
    RELEASED_IS_DEAD = "the claim of a node that the key was released from is not live"
    GONE_MACHINE_FREES_NAME = "the claim of a Machine that is gone fixes no node name (M3)"
    GONE_MACHINE_FREES_CLAIM = "a claim is live with its Machine, not with its provider ID"
    LIVING_KEY_KEPT = "K1 takes no key from a live claim"
    LIVING_NAME_KEPT = "K2 takes no name from a live claim"
    RECORD_BEATS_NAME = "K2: a key on record takes the name from a claim made without one"
    DEAD_CLAIMS_FREED = "K1 and K2 take what no live claim holds"
    RESOURCE_VERSIONS = "claims are written under the resourceVersion that was read"
    CONFIRMING_WRITES = "K2 writes also what it confirms"
    SECOND_WRITE = "K3 writes the key once more"
    SECOND_WRITE_ALWAYS = "K3 does so also where the claim was complete before"
    RESTART_ON_CONFLICT = "a conflict in K3 starts again from K1"
    SWEEP_VERSIONS = "claims that are not live are deleted under the resourceVersion that was read"
