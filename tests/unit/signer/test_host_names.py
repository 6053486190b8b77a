"""Forms of host names: no address of a Machine stops the watch."""

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.host_names import as_address, equivalent_names, normalize

ADDRESSES = ["192.0.2.1", "192.0.2.01", "192.0.2", "::ffff:192.0.2.1", "2001:db8::1", "fe80::1%1"]


@given(st.text("019.:af%/ ", max_size=20) | st.sampled_from(ADDRESSES))
def test_an_address_is_what_the_standard_library_parses(text: str) -> None:
    try:
        expected = ip_address(text)
    except ValueError:
        assert as_address(text) is None
    else:
        assert as_address(text) == (getattr(expected, "ipv4_mapped", None) or expected)


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_has_forms_and_its_own_is_one(text: str) -> None:
    assert normalize(text) in equivalent_names(text)


FORMS: dict[str, set[str]] = {
    "Node-1.Example.": {"node-1.example"},
    "B\u00dcCHER.example": {"b\u00fccher.example", "xn--bcher-kva.example"},
    "fa\u00df.example": {"fass.example", "xn--fa-hia.example"},
    "\u0392\u038c\u039b\u039f\u03a3.example": {
        "\u03b2\u03cc\u03bb\u03bf\u03c3.example",
        "xn--nxasmq6b.example",
    },
    "\u03b2\u03cc\u03bb\u03bf\u03c2.example": {
        "\u03b2\u03cc\u03bb\u03bf\u03c3.example",
        "xn--nxasmq6b.example",
        "xn--nxasmm1c.example",
    },
}
"""Names, and how clients look for them: by IDNA of 2003 and of 2008 (UTS #46, section 7.2)."""


@pytest.mark.parametrize(("text", "forms"), FORMS.items())
def test_a_name_has_the_forms_of_both_idnas(text: str, forms: set[str]) -> None:
    """The older one folds a sharp s and a final sigma, the newer one keeps them."""
    assert equivalent_names(text) == forms
