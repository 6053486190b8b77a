"""YAML as a person reads it: a text of several lines, such as PEM, is a block."""

import yaml


class _Dumper(yaml.SafeDumper):
    """Writes no aliases, and texts of several lines as blocks."""

    def ignore_aliases(self, _: object) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def to_yaml(document: object) -> str:
    """Return plain data as YAML, in the order of its mappings."""
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=100)
    return text
