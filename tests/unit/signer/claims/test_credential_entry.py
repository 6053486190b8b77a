"""Entries of a credential list: their text, and what cannot be read."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.claims.credential_entry import CredentialEntry, decode_entry, entry_of
from signer.model import ClusterKey, credential_id
from signer.verify.requests.credentials import MAX_CREDENTIAL_IDS
from tests.builders.attested_nodes import attested_node

POLICY = Path(__file__).parents[4] / "packaging/signer/credential-policy.yaml"
IDS = st.lists(st.binary(max_size=4).map(credential_id), max_size=MAX_CREDENTIAL_IDS, unique=True)
ATTESTED = st.datetimes(timezones=st.just(UTC)).map(lambda time: time.replace(microsecond=0))


def entry(ids: list[str], attested: datetime) -> CredentialEntry:
    """Return the entry of a node with these certificates."""
    cluster = ClusterKey(namespace="a", name="a")
    return entry_of(
        attested_node(
            cluster, key="k", last_attested=attested, credential_ids=tuple(ids), not_after=attested
        )
    )


@given(ids=IDS, attested=ATTESTED)
def test_entry_is_read_as_it_was_written(ids: list[str], attested: datetime) -> None:
    written = entry(ids, attested)
    assert decode_entry(written.encode()) == written
    assert all(map(written.names, ids))
    assert not written.names(credential_id(b"longer than all others"))
    assert not written.names("")


@given(st.text(alphabet="0123456789abcdefg X=\n", max_size=200))
def test_text_is_read_exactly_or_names_no_certificate(text: str) -> None:
    read = decode_entry(text)
    assert not read.ids or read.encode() == text


@pytest.mark.parametrize("text", ["", credential_id(b"a"), f"1 {'a' * 31}", f"1  {'a' * 32}", "-1"])
def test_text_that_no_signer_wrote_names_no_certificate(text: str) -> None:
    assert decode_entry(text) == CredentialEntry(0, ())


def test_entry_has_128_bits_of_each_certificate_where_the_admission_policy_has_them() -> None:
    """An entry of two certificates with full IDs had 151 bytes, and a list 6,944 nodes."""
    whole = credential_id(b"a")
    text = entry([whole, credential_id(b"b")], datetime(2026, 11, 23, tzinfo=UTC)).encode()
    assert len(text) == 76
    [(start, end)] = re.findall(r"substring\((\d+), (\d+)\)", POLICY.read_text())
    assert text.split()[1] == whole[int(start) : int(end)]
    assert (int(end) - int(start)) * 4 == 128
