"""YAML with the data types of JSON: mappings, lists, strings, numbers, booleans and null.

Repeated keys, documents that contain themselves and other tags are refused. A date is a string.
PyYAML's safe loader raises various exceptions if a value does not fit its tag (KeyError for
`!!bool x`), so nothing else in this project calls it.
"""

from collections.abc import Hashable
from typing import Final

import yaml
from yaml.constructor import ConstructorError

_PREFIX: Final = "tag:yaml.org,2002:"
_TAGS: Final = tuple(
    _PREFIX + name for name in ("null", "bool", "int", "float", "str", "seq", "map")
)
_MERGE: Final = _PREFIX + "merge"


class YamlMalformed(ValueError):
    """The text is not plain YAML data; the message says what is wrong, and where."""


class _Loader(yaml.SafeLoader):
    """Constructs plain data, and refuses repeated keys, of which PyYAML keeps the last."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            anchored = self.anchors.get(event.anchor)
            # A node without an end is still being composed, so this alias is inside it.
            if anchored is not None and anchored.end_mark is None:
                raise ConstructorError(None, None, "a node contains itself", event.start_mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        return node

    def construct_mapping(
        self,
        node: yaml.MappingNode,
        deep: bool = False,  # noqa: FBT001, FBT002 - PyYAML's signature
    ) -> dict[Hashable, object]:
        mapping = super().construct_mapping(node, deep=deep)
        if len(mapping) != len(node.value):
            raise ConstructorError(None, None, "a key is repeated", node.start_mark)
        return mapping


def _text(loader: _Loader, node: yaml.ScalarNode) -> str:
    text = str(loader.construct_scalar(node))
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ConstructorError(
            None, None, "a string contains half of a surrogate pair", node.start_mark
        )
    return text


_Loader.yaml_constructors = {tag: yaml.SafeLoader.yaml_constructors[tag] for tag in _TAGS} | {
    None: yaml.SafeLoader.yaml_constructors[None]
}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in resolvers if tag in {*_TAGS, _MERGE}]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_constructor(_PREFIX + "str", _text)


def load_all(text: str | bytes) -> list[object]:
    """Parse all documents. Raises `YamlMalformed`. The caller has limited the size of the text."""
    try:
        # _Loader is a SafeLoader, so it constructs plain data only.
        return list(yaml.load_all(text, Loader=_Loader))
    except yaml.YAMLError as error:
        raise YamlMalformed(" ".join(str(error).split())) from None
    except RecursionError:
        raise YamlMalformed("nested too deeply") from None
    except (ValueError, LookupError):
        raise YamlMalformed("a value does not fit its tag") from None


def load(text: str | bytes) -> object:
    """Parse a single document; return None if the text has no document. Raises `YamlMalformed`."""
    documents = load_all(text)
    if len(documents) > 1:
        raise YamlMalformed("there is more than one document")
    return documents[0] if documents else None
