"""The content of NV indices is split into certificates; no byte is lost or added."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authenticator.tpm.nv_certificates import split_chain


def certificate(size: int, fill: bytes = b"c") -> bytes:
    """Return a DER SEQUENCE of `size` bytes, the outer form of a certificate."""
    return b"\x30\x82" + size.to_bytes(2, "big") + fill * size


A, B, C = certificate(300, b"a"), certificate(700, b"b"), certificate(1200, b"c")


@pytest.mark.parametrize(
    ("contents", "pieces"),
    [
        pytest.param([], (), id="nothing"),
        pytest.param([A, B], (A, B), id="one each"),
        pytest.param([A + B + C], (A, B, C), id="all in one index"),
        pytest.param([A + B[:100], B[100:] + C], (A, B, C), id="continued in the next index"),
        pytest.param([C[:500], C[500:900], C[900:]], (C,), id="over three indices"),
        pytest.param([A + bytes(50), B], (A + bytes(50), B), id="padding stays"),
        pytest.param([A + b"\xff" * 9], (A + b"\xff" * 9,), id="trailing bytes stay"),
        pytest.param([b"\x04\x82\x01\x30" + A], (b"\x04\x82\x01\x30" + A,), id="wrapped"),
        pytest.param([A[:-1]], (A[:-1],), id="cut short"),
        pytest.param([b"", A, b""], (A,), id="empty indices"),
        pytest.param([b"\x30\x82"], (b"\x30\x82",), id="half a header"),
    ],
)
def test_chain_is_split(contents: list[bytes], pieces: tuple[bytes, ...]) -> None:
    assert split_chain(contents) == pieces


@given(st.lists(st.one_of(st.binary(max_size=40), st.sampled_from([A, B, A[:20], A + B]))))
def test_no_byte_is_lost_and_no_piece_is_empty(contents: list[bytes]) -> None:
    pieces = split_chain(contents)
    assert b"".join(pieces) == b"".join(contents)
    assert all(pieces)
