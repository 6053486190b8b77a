"""TPMS_ATTEST: quotes that swtpm made are parsed to the byte."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.tpm.attest import Attest, AttestNotGenerated, AttestNotQuote, ClockInfo
from common.tpm.public import PublicArea
from common.tpm.reader import StructureMalformed
from tests import vectors

CASES = vectors.cases("quotes")
GOOD = bytes.fromhex(CASES[0]["attest"])
SELECTIONS = {
    "sha256:0,1,2,3,4,5,6,7": {"sha256": (0, 1, 2, 3, 4, 5, 6, 7)},
    "sha256:0,7,23": {"sha256": (0, 7, 23)},
    "sha1:0,10+sha256:7,14+sha384:1": {"sha1": (0, 10), "sha256": (7, 14), "sha384": (1,)},
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_quote_of_a_tpm_is_parsed_completely(case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["attest"])
    attest = Attest.parse(data)
    assert attest.extra_data.hex() == case["extra_data"]
    assert attest.selection == SELECTIONS[case["selection"]]
    assert len(attest.pcr_digest) == 32
    # A Qualified Name has the nameAlg of its key.
    assert attest.qualified_signer[:2] == b"\x00\x0b"
    assert attest.qualified_signer != PublicArea.from_tpm2b(bytes.fromhex(case["public"])).name()
    assert attest.encode() == data


def test_wrong_magic_has_its_own_error() -> None:
    """tpm2-tools CVE-2024-29038: without this check, bytes that no TPM made passed."""
    with pytest.raises(AttestNotGenerated):
        Attest.parse(b"\xff\x54\x43\x48" + GOOD[4:])


@pytest.mark.parametrize("kind", ["8014", "8017", "801a", "0018"])
def test_other_attestation_types_have_their_own_error(kind: str) -> None:
    with pytest.raises(AttestNotQuote):
        Attest.parse(GOOD[:4] + bytes.fromhex(kind) + GOOD[6:])


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"\xff\x54", "data ends early"),
        (GOOD + b"\0", "trailing bytes"),
        (GOOD[:-1], "data ends early"),
        (GOOD[:6] + b"\x00\x43" + GOOD[8:], "buffer exceeds its size limit"),
        (GOOD[:42] + b"\x00\x43" + GOOD[44:], "buffer exceeds its size limit"),
        (GOOD[:92] + b"\x02" + GOOD[93:], "safe must be YES or NO"),
        (GOOD[:-34] + b"\x00\x41" + GOOD[-32:], "buffer exceeds its size limit"),
        (GOOD[:-34] + b"\x00\x1f" + GOOD[-32:], "trailing bytes"),
    ],
)
def test_one_wrong_field_is_refused_by_its_rule(data: bytes, rule: str) -> None:
    with pytest.raises(StructureMalformed) as caught:
        Attest.parse(data)
    assert type(caught.value) is StructureMalformed
    assert caught.value.rule == rule


LARGEST = replace(
    Attest.parse(GOOD), qualified_signer=bytes(66), extra_data=bytes(66), pcr_digest=bytes(64)
)


@pytest.mark.parametrize("field", ["qualified_signer", "extra_data", "pcr_digest"])
def test_fields_are_accepted_up_to_their_size_limit(field: str) -> None:
    assert Attest.parse(LARGEST.encode()) == LARGEST
    larger = replace(LARGEST, **{field: getattr(LARGEST, field) + b"\0"})
    with pytest.raises(StructureMalformed, match="exceeds its size limit"):
        Attest.parse(larger.encode())


U32, U64 = st.integers(0, 0xFFFFFFFF), st.integers(0, 0xFFFFFFFFFFFFFFFF)


@given(
    st.builds(
        Attest,
        qualified_signer=st.binary(max_size=66),
        extra_data=st.binary(max_size=66),
        clock_info=st.builds(
            ClockInfo, clock=U64, reset_count=U32, restart_count=U32, safe=st.booleans()
        ),
        firmware_version=U64,
        selection=st.sampled_from(list(SELECTIONS.values())),
        pcr_digest=st.binary(max_size=64),
    )
)
def test_encoded_value_parses_to_itself(attest: Attest) -> None:
    assert Attest.parse(attest.encode()) == attest
