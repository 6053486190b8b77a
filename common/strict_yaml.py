"""YAML as far as JSON goes: mappings, lists, texts, numbers, truth values and nothing else.

A key that stands twice and a document that contains itself are refused, and so is every tag that
would make something else; what looks like a date is a text. PyYAML's own safe loader raises
whatever comes up when a tag and its value do not fit (`!!bool x` a KeyError), so it is only used
through here.
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
    """The text is not YAML of plain data; the message tells what is wrong, and where."""


class _Loader(yaml.SafeLoader):
    """Plain data only, and no key twice: YAML would let the last one win without a word."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            named = self.anchors.get(event.anchor)
            # Its end is only known once it has been read to its end.
            if named is not None and named.end_mark is None:
                raise ConstructorError(None, None, "it contains itself", event.start_mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        return node

    def construct_mapping(
        self,
        node: yaml.MappingNode,
        deep: bool = False,  # noqa: FBT001, FBT002 - PyYAML's signature
    ) -> dict[Hashable, object]:
        mapping = super().construct_mapping(node, deep=deep)
        if len(mapping) != len(node.value):
            raise ConstructorError(None, None, "key given twice", node.start_mark)
        return mapping


def _text(loader: _Loader, node: yaml.ScalarNode) -> str:
    text = str(loader.construct_scalar(node))
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ConstructorError(None, None, "half of a character", node.start_mark)
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
    """Read every document. Raises YamlMalformed. The caller has bounded the text."""
    try:
        # _Loader is a SafeLoader: it makes no objects but plain data
        return list(yaml.load_all(text, Loader=_Loader))
    except yaml.YAMLError as error:
        raise YamlMalformed(" ".join(str(error).split())) from None
    except RecursionError:
        raise YamlMalformed("nested too deeply") from None
    except (ValueError, LookupError):
        raise YamlMalformed("a value is not of the type that its tag says") from None


def load(text: str | bytes) -> object:
    """Read the one document, `None` where there is none. Raises YamlMalformed."""
    documents = load_all(text)
    if len(documents) > 1:
        raise YamlMalformed("there is more than one document")
    return documents[0] if documents else None
