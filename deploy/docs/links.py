"""Links in Markdown: found, followed, and told when they lead nowhere."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from posixpath import dirname, join, normpath

from pymdownx.slugs import slugify

from deploy.docs.places import GENERATED, PAGES_FOLDER, TOP

_FENCE = re.compile(r"^( {0,8}(?:```|~~~)).*?^ {0,8}(?:```|~~~) *$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^][]|\[[^][]*\])*)\]\((?P<target>[^()\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *#* *$", re.MULTILINE)
_ELSEWHERE = re.compile(r"^[a-z][a-z+.-]*:|^//", re.IGNORECASE)

_slug = slugify(case="lower")


@dataclass(frozen=True, slots=True)
class Link:
    """A link or a picture in a text."""

    start: int
    end: int
    line: int
    text: str
    target: str
    is_image: bool

    @property
    def is_elsewhere(self) -> bool:
        """Whether it leads out of the repository; nobody follows it there."""
        return _ELSEWHERE.match(self.target) is not None


def links(text: str) -> Iterator[Link]:
    """All links of a text, in order; what stands in code is none."""
    plain = _without_code(text)
    for found in _LINK.finditer(plain):
        begin, end = found.span("text")
        yield Link(
            start=found.start(),
            end=found.end(),
            line=plain.count("\n", 0, found.start()) + 1,
            text=text[begin:end],
            target=found["target"],
            is_image=bool(found["image"]),
        )


def anchors(text: str) -> set[str]:
    """The anchors of a text's headings, as the site and code hosts make them."""
    headings = [
        _LINK.sub(r"\g<text>", h).replace("`", "") for h in _HEADING.findall(_fenceless(text))
    ]
    return {_slug(heading, "-") for heading in headings}


def target_path(file: str, target: str) -> str:
    """The path from the repository's top that a link of a file names, without its anchor."""
    path = target.partition("#")[0]
    return normpath(join(dirname(file), path)) if path else file


def faults(file: str, text: str) -> list[str]:
    """What is wrong with the links of a file: one line each, with its place.

    Args:
        file: from the repository's top, with slashes.
        text: what is in it.
    """
    found = []
    for link in links(text):
        reason = None if link.is_elsewhere else _fault(file, text, link.target)
        if reason is not None:
            found.append(f"{file}:{link.line}: {link.target}: {reason}")
    return found


def _fault(file: str, text: str, target: str) -> str | None:
    path, anchor = target_path(file, target), target.partition("#")[2]
    if path.startswith(".."):
        return "leads out of the repository"
    if path.removeprefix(f"{PAGES_FOLDER}/") in GENERATED and path.startswith(PAGES_FOLDER):
        return None  # It is made when the site is built, which checks its anchors.
    place = TOP / path
    if path != file and not place.exists():
        return "there is no such file"
    if not anchor:
        return None
    if not path.endswith(".md"):
        return "only Markdown has anchors"
    known = anchors(text) if path == file else _anchors_of(place)
    return None if anchor in known else "there is no such heading"


@cache
def _anchors_of(path: Path) -> set[str]:
    return anchors(path.read_text(encoding="utf-8"))


def _fenceless(text: str) -> str:
    return _FENCE.sub(_blank, text)


def _without_code(text: str) -> str:
    """The text with spaces for all that is code: every place stays where it was."""
    return _CODE.sub(_blank, _fenceless(text))


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])
