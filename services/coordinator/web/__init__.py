"""The coordinator's pages: static files, of which the views share one frame."""

from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Final

WEB: Final = Path(__file__).parent

VIEWS: Final[Mapping[str, str]] = {
    "page": "A page",
    "hosts": "Hosts",
    "sources": "Sources",
    "calibration": "Calibration",
}
"""Name of each view, which is its path and that of its files → title."""

_SCRIPTS: Final = ("picture", "chart", "common", *VIEWS)


def files() -> dict[str, tuple[str, str]]:
    """Path → text and content type of all that is served, as it was when this is called."""
    served = {"/": (_text("index.html"), "text/html")}
    served |= {f"/{name}": (_view(name), "text/html") for name in VIEWS}
    served |= {f"/{name}.js": (_text(f"{name}.js"), "text/javascript") for name in _SCRIPTS}
    return served | {"/style.css": (_text("style.css"), "text/css")}


def _view(name: str) -> str:
    """A view in the frame of all, which leads to all others and says which one this is."""
    content = _text(f"{name}.html")
    framed = Template(_text("view.html")).substitute(title=VIEWS[name], name=name, content=content)
    return framed.replace(f'<a href="{name}">', f'<a href="{name}" aria-current="page">')


def _text(name: str) -> str:
    return (WEB / name).read_text()
