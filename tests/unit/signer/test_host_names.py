"""Forms of host names: no address of a Machine stops the watch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.host_names import equivalent_names, normalize


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
