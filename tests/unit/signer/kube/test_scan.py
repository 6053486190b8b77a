"""The scanner cuts exactly where the decoder would, however deeply a text is nested."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.kube.scan import elements, identify, members

TEXTS = st.text(alphabet=st.sampled_from('a"\\[]{},: \n\u00e9\u2028'), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=30,
)
STYLES: list[dict[str, Any]] = [{}, {"indent": 1}, {"separators": (",", ":")}]


@given(body=st.dictionaries(TEXTS, VALUES, max_size=4), style=st.sampled_from(STYLES))
def test_members_are_those_of_the_decoder(body: dict[str, Any], style: dict[str, Any]) -> None:
    text = json.dumps(body, ensure_ascii=False, **style).encode()
    assert {name: json.loads(value) for name, value in members(text).items()} == body


@given(items=st.lists(VALUES, max_size=6), style=st.sampled_from(STYLES))
def test_elements_are_those_of_the_decoder(items: list[Any], style: dict[str, Any]) -> None:
    text = json.dumps(items, ensure_ascii=False, **style).encode()
    assert [json.loads(element) for element in elements(text)] == items


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b"[0,", b"[[],[[]],"])
@pytest.mark.parametrize("levels", [1, 7, 8, 9, 16, 17, 1_000, 100_000])
def test_value_of_any_depth_ends_at_its_own_bracket(opening: bytes, levels: int) -> None:
    value = opening * levels + b"1" + (b"}" if b"{" in opening else b"]") * levels
    assert members(b'{"deep":' + value + b',"next":"]}"}') == {"deep": value, "next": b'"]}"'}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"null",
        b'{"a":1',
        b'{"a":1,}',
        b'{"a":}',
        b'{"a" 1}',
        b'{"a":1 "b":2}',
        b"{a:1}",
        b'{"a":"b}',
        b'{"a":[[1]}',
        b'{"a":1}}',
        b'{"a\\x":1}',
    ],
)
def test_text_that_is_no_whole_object_is_refused(text: bytes) -> None:
    """A page that was cut off must not look like a shorter one."""
    with pytest.raises(ValueError, match=r".+"):
        members(text)


def test_identity_is_read_at_its_own_depth_only() -> None:
    """A tenant must not choose whose object its own looks like."""
    text = (
        b'{"kind":"Machine","spec":{"metadata":{"name":"other","namespace":"other"}},"metadata":'
        b'{"annotations":{"name":"other"},"name":"own","na\\u006despace":"team-b","uid":"u",'
        b'"resourceVersion":"7","labels":{"uid":"other"}},"status":{"kind":"Other"}}'
    )
    found = identify(text)
    assert (found.kind, found.key, found.uid, found.resource_version) == (
        "Machine",
        "team-b/own",
        "u",
        "7",
    )


@pytest.mark.parametrize("metadata", [b"{}", b'{"name":""}', b'{"name":["a"]}', b"[]", b'"name"'])
def test_object_without_a_name_has_no_identity(metadata: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        identify(b'{"metadata":' + metadata + b"}")
