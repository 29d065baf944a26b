"""The files of the documentation: all Markdown that people read."""

from deploy.docs.places import PAGES_FOLDER, TOP

_FOLDERS = ("clients", "deploy", "migrations", "services", "shared", "tests")


def documents() -> list[str]:
    """Paths from the repository's top: those there, the pages, and those beside the code."""
    found = [*TOP.glob("*.md"), *(TOP / PAGES_FOLDER).rglob("*.md")]
    for folder in _FOLDERS:
        found += (TOP / folder).rglob("*.md")
    return sorted(path.relative_to(TOP).as_posix() for path in found)
