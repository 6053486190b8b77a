"""A hook of the documentation site: what a page of the repository needs on a site without network.

- A link to a file outside of docs/ becomes the file's path: the site has the pages of docs/ only.
- A Mermaid diagram becomes a picture. Otherwise the browser would load a renderer from elsewhere.
  The renderer measures text in a narrow font, and browsers show it in a font that the machine has.
  So the text of the picture is smaller than the renderer wants it.
- A long name in the first column of a table may break between its words.
"""

import base64
import html
import posixpath
import re
from typing import Any

import mmdr

_LINK = re.compile(r"\[([^]]+)\]\(((?:\.\./)+[^)#]+)(?:#[^)]*)?\)")
_DIAGRAM = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"(?<=<tr>\n<td><code>)[\w.]+(?=</code>)")
_BREAK = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[._])(?=\w)")
_FONT_SIZE = re.compile(r"(?<=font-size:)\d+(?=px)")
_SMALLER = 0.78
_PICTURE = '<img alt="{title}" width="{width}" src="data:image/svg+xml;base64,{data}">'


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

    return _DIAGRAM.sub(lambda match: _draw(match[1]), _LINK.sub(replace, markdown))


def on_page_content(content: str, **_: object) -> str:
    """Return the HTML of a page for the site."""
    return _NAME.sub(lambda name: _BREAK.sub("<wbr>", name[0]), content)


def _draw(source: str) -> str:
    """Return the picture of a diagram, with its `accTitle` as text."""
    title, svg = re.search(r"accTitle: (.+)", source), mmdr.render(source).svg()
    svg = _FONT_SIZE.sub(lambda size: f"{int(size[0]) * _SMALLER:.1f}", svg)
    width = re.search(r'viewBox="[-\d.]+ [-\d.]+ ([\d.]+)', svg)
    if not title or not width:
        raise ValueError(f"The diagram must have an accTitle, and its picture a width: {source}")
    return _PICTURE.format(
        title=html.escape(title[1]),
        width=round(float(width[1])),
        data=base64.b64encode(svg.encode()).decode(),
    )
