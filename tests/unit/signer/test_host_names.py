"""Forms of host names: whatever stands in a Machine's address, its watch goes on."""

from hypothesis import given
from hypothesis import strategies as st

from signer.host_names import every_form, host_name


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_has_forms_and_its_own_is_one(text: str) -> None:
    assert host_name(text) in every_form(text)
