"""The ProVerif model has the fields, queries and rules of the text and of the program.

ProVerif itself is not needed here: `make prove` runs it.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from common.requests import binding
from tests.model.document import table
from tests.model.proverif.rules import EXPECTED, MODEL, RULES, Rule, Verdict

TEXT = (MODEL.parents[3] / "docs" / "protocol.md").read_text(encoding="utf-8")
PV = MODEL.read_text(encoding="utf-8")


class Field(NamedTuple):
    """One field of the input of an HMAC: in docs/protocol.md, in a call of the program, in PV."""

    text: str
    value: bytes
    term: str


CHALLENGE = (
    Field('"challenge/v1"', b"challenge/v1", "challengeV1"),
    Field("Cluster UID", b"cluster", "clusterUID"),
    Field("signerName", b"signer", "signerName"),
    Field("requester username", b"user", "username"),
    Field("uid of A", b"offer", "offerUID"),
    Field("issuedAt", b"issued", "issuedAt"),
    Field("SHA-256 of the PKCS#10 DER", b"pkcs10", "sha256(pkcs10)"),
    Field("SHA-256 of the EK's canonical SubjectPublicKeyInfo", b"ek", "sha256(ek)"),
    Field("AK Name", b"ak", "akName"),
)
ANSWER = (
    Field('"answer/v1"', b"answer/v1", "answerV1"),
    Field("metadata.name of B", b"name", "name"),
    Field("SHA-256 of the PKCS#10 DER", b"pkcs10", "sha256(pkcs10)"),
    Field('expirationSeconds in decimal or ""', b"600", "expirationSeconds"),
    Field('usages sorted and joined by ","', b"a,b", "usages"),
    Field('challenge.members joined by ","', b"c,d", "members"),
)


def of_text(hmac: str) -> list[str]:
    """Return the fields that docs/protocol.md lists for `secret` or `extraData`."""
    [fields] = re.findall(rf"`{hmac} = HMAC-SHA256\([a-z ]+, fields\((.*?)\)\)`", TEXT)
    return str(fields).split(", ")


def of_model(function: str) -> list[str]:
    """Return the terms in the HMAC of a function of exchange.pv."""
    [terms] = re.findall(rf"letfun {function}\([^)]*\) =\s*hmac\(\w+,\s*\((.*)\)\)\.", PV)
    return str(terms).split(", ")


def decode(data: bytes) -> list[bytes]:
    """Split what `encode_fields` has joined."""
    fields = []
    while data:
        end = 4 + int.from_bytes(data[:4], "big")
        fields.append(data[4:end])
        data = data[end:]
    return fields


def require_same(fields: Sequence[Field], text: list[str], data: bytes, model: list[str]) -> None:
    """Require that text, program and model have the same list."""
    assert text == [field.text for field in fields]
    assert decode(data) == [field.value for field in fields]
    assert model == [field.term for field in fields]


def test_challenge_secret_has_the_same_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "hmac_sha256", lambda _, data: data)
    inputs = binding.ChallengeInputs(
        cluster_uid="cluster",
        signer_name="signer",
        username="user",
        offer_uid="offer",
        issued_at="issued",
        pkcs10_sha256=b"pkcs10",
        ek_spki_sha256=b"ek",
        ak_name=b"ak",
    )
    data = binding.challenge_secret(b"", inputs)
    require_same(CHALLENGE, of_text("secret"), data, of_model("challenge_secret"))


def test_extra_data_has_the_same_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "hmac_sha256", lambda _, data: data)
    data = binding.answer_extra_data(
        b"",
        name="name",
        pkcs10_sha256=b"pkcs10",
        expiration_seconds=600,
        usages=("b", "a"),
        members=("d", "c"),
    )
    require_same(ANSWER, of_text("extraData"), data, of_model("answer_extra_data"))


def test_each_query_has_an_expected_verdict() -> None:
    queries = re.findall(r"^\(\* ([a-z-]+): [^*]* \*\)\nquery ", PV, re.MULTILINE)
    assert queries == list(EXPECTED)
    assert len(re.findall(r"^query ", PV, re.MULTILINE)) == len(queries)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_rule_can_be_broken(rule: Rule) -> None:
    assert rule.break_in(PV) != PV
    assert rule.lost
    assert {EXPECTED[query] for query in rule.lost} == {Verdict.PROVED}


def test_each_promise_needs_a_rule() -> None:
    """A query that no broken rule makes false could be true of any protocol."""
    promised = {query for query, verdict in EXPECTED.items() if verdict is Verdict.PROVED}
    assert promised == {query for rule in RULES for query in rule.lost}


def test_document_has_the_verdicts() -> None:
    rows = [row.strip("|").split("|") for row in table("query")]
    assert {row[0].strip(): row[-1].strip() for row in rows} == dict(EXPECTED)


def test_document_has_the_rules() -> None:
    rows = [f"| {rule.name} | {', '.join(sorted(rule.lost))} |" for rule in RULES]
    assert table("rule that the ProVerif model leaves out") == rows
