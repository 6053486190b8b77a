"""A hook of the documentation site: a link to a file outside of docs/ becomes the file's path.

In the repository such a link works. The site has the pages of docs/ only.
"""

import posixpath
import re
from typing import Any

_LINK = re.compile(r"\[([^]]+)\]\(((?:\.\./)+[^)#]+)(?:#[^)]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: object) -> str:  # noqa: ANN401 - untyped
    """Return the text of a page for the site."""
    directory = posixpath.dirname(page.file.src_uri)

    def replace(match: re.Match[str]) -> str:
        label, target = match.groups()
        path = posixpath.normpath(posixpath.join("docs", directory, target))
        if path.startswith("docs/"):
            return match[0]
        return (
            f"`{path}`"
            if label.strip("`") in {path, posixpath.basename(path)}
            else (f"{label} (`{path}`)")
        )

    return _LINK.sub(replace, markdown)
