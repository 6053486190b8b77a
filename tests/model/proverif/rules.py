"""What ProVerif must find in exchange.pv, and in exchange.pv with one rule broken.

docs/model.md says the same in words.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

MODEL = Path(__file__).parent / "exchange.pv"


class Verdict(StrEnum):
    """What ProVerif says of a query."""

    PROVED = "proved"
    FOUND = "found"
    """It found an attack or, for a query of reachability, a way."""
    UNDECIDED = "undecided"


EXPECTED: Mapping[str, Verdict] = MappingProxyType(
    {
        "reachable": Verdict.FOUND,
        "reachable-platform": Verdict.FOUND,
        "reachable-attacker": Verdict.FOUND,
        "agreement": Verdict.PROVED,
        "own-node": Verdict.PROVED,
        "pcrs": Verdict.PROVED,
        "fresh": Verdict.PROVED,
        "cluster": Verdict.FOUND,
        "banned": Verdict.PROVED,
        "released": Verdict.PROVED,
        "one-node": Verdict.PROVED,
    }
)
"""The verdict on each query, by its name in exchange.pv, in the same order."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the protocol, and a change of exchange.pv that breaks it."""

    name: str
    old: str
    new: str
    lost: frozenset[str]
    """The queries that ProVerif proves with the rule, and for which it finds an attack without."""

    def break_in(self, model: str) -> str:
        """Return the model without this rule."""
        if self.old not in model:
            raise ValueError(f"exchange.pv must contain {self.old!r}: correct this rule")
        return model.replace(self.old, self.new)


CHALLENGE_FIELDS = (
    "(challengeV1, clusterUID, signerName, username, offerUID, issuedAt, sha256(pkcs10),"
    " sha256(ek), akName)"
)
ANSWER_FIELDS = "(answerV1, name, sha256(pkcs10), expirationSeconds, usages, members)"
_OPEN = (
    "reduc forall ek: endorsementKey, akName: bitstring, value: bitstring, seed: bitstring;\n"
    "  activateCredential(makeCredential(ekPublic(ek), akName, value, seed), ek, akName) = value."
)
_VERIFY = "let (=expected, quotedVm: bitstring, pcrs: bitstring) = verifyQuote(quoted, akKey) in"
_RECORD = "get records(=cluster, =node, =providerID, =ek) in"
_CERTIFIED = (
    "let (=akKey, =ek) = (certifiedKey(keyCertificate, platform), createdKey(created, akKey)) in"
)
_BANNED = "event(Banned(w, k, s2)) ==> false"
_RELEASED = "event(Released(w, k, s2, c)) ==> false"
_ONE_HOLDER = (
    "==> (c, m, d) = (c2, m2, d2) || event(Released(w3, k, s3, c))"
    " || event(Released(w3, k, s3, c2))."
)
_CLAIMS = ("banned", "released", "one-node")
_TRUSTED = "let trusted = akKey in"
_RESTRICTED = "attestationPublic(restricted(key)) = key."


def _rule(name: str, old: str, new: str, *lost: str) -> Rule:
    return Rule(name, old, new, frozenset(lost))


def _field(name: str, fields: str, field: str, *lost: str) -> Rule:
    return _rule(name, fields, fields.replace(f", {field}", ""), *lost)


RULES = (
    _field("extraData holds the name of B", ANSWER_FIELDS, "name", "agreement", "own-node"),
    _field("extraData holds the PKCS#10", ANSWER_FIELDS, "sha256(pkcs10)", "agreement", "own-node"),
    _field(
        "extraData holds expirationSeconds",
        ANSWER_FIELDS,
        "expirationSeconds",
        "agreement",
        "own-node",
    ),
    _field("extraData holds the usages", ANSWER_FIELDS, "usages", "agreement", "own-node"),
    _field("the secret holds the Cluster UID", CHALLENGE_FIELDS, "clusterUID", "fresh"),
    _field("the secret holds the signer name", CHALLENGE_FIELDS, "signerName", "fresh"),
    _field("the secret holds the requester", CHALLENGE_FIELDS, "username", "fresh"),
    _field("the secret holds the UID of A", CHALLENGE_FIELDS, "offerUID", "fresh"),
    _field("the secret holds issuedAt", CHALLENGE_FIELDS, "issuedAt", "fresh"),
    _field("the secret holds the PKCS#10", CHALLENGE_FIELDS, "sha256(pkcs10)", "fresh"),
    _field(
        "the secret holds the endorsement key",
        CHALLENGE_FIELDS,
        "sha256(ek)",
        *("agreement", "own-node", "pcrs", "fresh"),
    ),
    _field(
        "the secret holds the Name of the attestation key",
        CHALLENGE_FIELDS,
        "akName",
        *("agreement", "own-node", "pcrs", "fresh"),
    ),
    _rule(
        "the TPM opens a challenge only for the attestation key whose Name is in it",
        _OPEN,
        _OPEN.replace("seed: bitstring;", "seed: bitstring, other: bitstring;").replace(
            "ek, akName)", "ek, other)"
        ),
        *("agreement", "own-node", "pcrs"),
    ),
    _rule(
        "only the endorsement key opens its challenge",
        _OPEN,
        _OPEN.replace("seed: bitstring;", "seed: bitstring, other: endorsementKey;").replace(
            "ek, akName)", "other, akName)"
        ),
        *("agreement", "own-node", "pcrs"),
    ),
    _rule(
        "A1: the attestation key is restricted",
        _RESTRICTED,
        _RESTRICTED[:-1] + "; forall key: bitstring; attestationPublic(unrestricted(key)) = key.",
        "pcrs",
    ),
    _rule(
        "Q1: the attestation key has signed the quote",
        _VERIFY,
        _VERIFY.replace("verifyQuote(quoted, akKey)", "quoted"),
        *("agreement", "own-node", "pcrs", *_CLAIMS),
    ),
    _rule(
        "Q2: extraData is the expected value",
        _VERIFY,
        _VERIFY.replace("=expected", "other: bitstring"),
        *("agreement", "own-node", "pcrs", "fresh"),
    ),
    _rule(
        "E2: the endorsement key is registered for the Machine",
        _RECORD,
        "get records(=cluster, =node, =providerID, other) in",
        "own-node",
    ),
    _rule(
        "A2: the platform certifies the attestation key",
        _CERTIFIED,
        _CERTIFIED.replace("certifiedKey(keyCertificate, platform)", "akKey"),
        *("own-node", *_CLAIMS),
    ),
    _rule(
        "E2: the certified attestation key says that its TPM made the endorsement key",
        _CERTIFIED,
        _CERTIFIED.replace("createdKey(created, akKey)", "ek"),
        "own-node",
    ),
    _rule("E2: PCR 6 names the virtual machine", "=quotedVm", "other", "own-node"),
    _rule(
        "K1: the certified attestation key is claimed, not the endorsement key",
        _TRUSTED,
        _TRUSTED.replace("akKey", "ek"),
        *_CLAIMS,
    ),
    _rule("K1: a banned key is not claimed", _BANNED, "event(Banned(w, k, s2)) ==> true", "banned"),
    _rule(
        "K1: a released key is not claimed in that Cluster",
        _RELEASED,
        "event(Released(w, k, s2, c)) ==> true",
        "released",
    ),
    _rule("K1: no other node holds the key", _ONE_HOLDER, "==> true.", "one-node"),
    _rule(
        "the key of the platform is secret",
        "new platform: platformKey;",
        "new platform: platformKey; out(net, platform);",
        *("own-node", *_CLAIMS),
    ),
    _rule(
        "the challenge key is secret",
        "new challengeKey: bitstring;",
        "new challengeKey: bitstring; out(net, challengeKey);",
        *("agreement", "own-node", "pcrs", "fresh"),
    ),
)
"""Every rule of exchange.pv. Each costs at least one query, so each is needed."""
