"""TPML_PCR_SELECTION: each selection has one accepted encoding, on which Q3 relies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.tpm.constants import BANKS
from common.tpm.pcrs import PcrSelection, encode_selection, parse_selection
from common.tpm.reader import StructureMalformed

SELECTIONS = st.dictionaries(
    st.sampled_from(sorted(BANKS)),
    st.sets(st.integers(0, 23)).map(lambda indices: tuple(sorted(indices))),
)


@pytest.mark.parametrize(
    ("selection", "encoded"),
    [
        ({}, "00000000"),
        ({"sha256": (0, 1, 2, 3, 4, 5, 6, 7)}, "00000001000b03ff0000"),
        ({"sha256": (0, 8, 23)}, "00000001000b03010180"),
        ({"sha1": (0,), "sha384": (1,)}, "00000002000403010000000c03020000"),
        # The TPM has not allocated the bank: it is present and empty.
        ({"sha512": ()}, "00000001000d03000000"),
    ],
)
def test_selection_is_parsed_and_encoded(selection: PcrSelection, encoded: str) -> None:
    assert parse_selection(bytes.fromhex(encoded)) == selection
    assert encode_selection(selection).hex() == encoded


def test_banks_are_encoded_in_ascending_order() -> None:
    assert encode_selection({"sha384": (1,), "sha1": (0,)}) == encode_selection(
        {"sha1": (0,), "sha384": (1,)}
    )


def test_repeated_pcr_is_encoded_once() -> None:
    assert encode_selection({"sha256": (0, 0, 7)}) == encode_selection({"sha256": (0, 7)})


@pytest.mark.parametrize(
    ("encoded", "rule"),
    [
        ("00000001001203ff0000", "bank is unknown"),
        ("00000002000c030200000004030100 00", "banks must be ascending, once each"),
        ("00000002000b03020000000b03010000", "banks must be ascending, once each"),
        ("00000001000b02ff00", "sizeofSelect must be 3"),
        ("00000001000b04ff000000", "sizeofSelect must be 3"),
        ("00000001000b03ff00", "data ends early"),
        ("00000001000b03ff000000", "trailing bytes"),
        ("00000005000b03ff0000", "selection has too many banks"),
        ("ffffffff", "selection has too many banks"),
    ],
)
def test_other_encodings_are_refused(encoded: str, rule: str) -> None:
    with pytest.raises(StructureMalformed) as caught:
        parse_selection(bytes.fromhex(encoded))
    assert caught.value.rule == rule


@given(SELECTIONS)
def test_encoded_value_parses_to_itself(selection: PcrSelection) -> None:
    assert parse_selection(encode_selection(selection)) == selection
