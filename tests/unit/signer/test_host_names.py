"""Forms of host names: no address of a Machine stops the watch."""

import unicodedata
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer import host_names
from signer.host_names import as_address, canonical_name, normalize

MAX_NAME, MAX_LABEL = 253, 63
ADDRESSES = ["192.0.2.1", "192.0.2.01", "192.0.2", "::ffff:192.0.2.1", "2001:db8::1", "fe80::1%1"]


@given(st.text("019.:af%/ ", max_size=20) | st.sampled_from(ADDRESSES))
def test_an_address_is_what_the_standard_library_parses(text: str) -> None:
    try:
        expected = ip_address(text)
    except ValueError:
        assert as_address(text) is None
    else:
        assert as_address(text) == (getattr(expected, "ipv4_mapped", None) or expected)


def spellings(text: str) -> set[str]:
    """Return what clients look up: by IDNA of 2003 and of 2008 (UTS #46, section 7.2)."""
    names = {text}
    for folded in (text.lower(), text.casefold()):
        labels = unicodedata.normalize("NFKC", folded).replace("\u3002", ".").split(".")
        names.add(".".join(label if label.isascii() else to_punycode(label) for label in labels))
    return names


def to_punycode(label: str) -> str:
    return "xn--" + label.encode("punycode").decode("ascii")


NAMES = st.lists(st.text(max_size=20), max_size=4).map(".".join)


@given(NAMES)
def test_all_spellings_of_a_name_have_one_canonical_name(text: str) -> None:
    in_dns = {name for name in spellings(text) if max(map(len, name.split("."))) <= MAX_LABEL}
    assert {canonical_name(name) for name in in_dns} <= {canonical_name(text)}


@given(st.text("xn-\u00e9\u4e00.:1", max_size=300) | st.text(max_size=300))
def test_any_text_has_a_canonical_name(text: str) -> None:
    """No address of a Machine stops the watch, whatever it looks like."""
    name = canonical_name(text)
    if len(text) > MAX_NAME:
        assert name == normalize(text)


EXAMPLES = {
    "node-1.example": ("Node-1.Example.", "NODE-1.example"),
    "b\u00fccher.example": ("B\u00dcCHER.example", "bu\u0308cher.example", "xn--bcher-kva.example"),
    "fass.example": ("fa\u00df.example", "xn--fa-hia.example", "FASS.example"),
    "\u03b2\u03cc\u03bb\u03bf\u03c3.example": (
        "\u0392\u038c\u039b\u039f\u03a3.example",
        "xn--nxasmq6b.example",
        "xn--nxasmm1c.example",
    ),
}
"""Canonical names, each with spellings. The older IDNA folds a sharp s and a final sigma."""


@pytest.mark.parametrize(("name", "texts"), EXAMPLES.items())
def test_canonical_name_is_that_of_both_idnas(name: str, texts: tuple[str, ...]) -> None:
    assert {canonical_name(text) for text in texts} == {name}


@pytest.mark.parametrize(
    "text",
    [
        "".join(chr(0x4E00 + 37 * number % 20_000) for number in range(4096)),
        "xn--" + "a1" * 2046,
        "".join(chr(0x300 + 7 * number % 60) for number in range(4096)),
        ("xn--" + "9" * 90 + ".") * 2,
        "\u00e4." * 127,
    ],
    ids=["letters", "punycode", "marks", "long labels", "many labels"],
)
def test_name_that_dns_cannot_hold_is_not_folded(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One such address of a Machine took 40 ms to 5 s of the thread of all watches."""
    folded: list[str] = []

    def fold(label: str) -> str:
        folded.append(label)
        return label

    monkeypatch.setattr(host_names, "_fold_compatible", fold)
    assert canonical_name(text) == normalize(text)
    assert not any(folded)
