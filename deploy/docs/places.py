"""Which pages the site has beside those under `docs`, and where they stand in it."""

from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
"""The repository's top folder: every path here is relative to it."""

PAGES_FOLDER = "docs"

FOLDED = {
    "shared/policy/README.md": "mathematics/tour.md",
    "services/replay/results/README.md": "decide/results.md",
    "services/bench/README.md": "decide/measured.md",
    "clients/scrapy-freshet/README.md": "connect/scrapy.md",
    "deploy/chart/README.md": "operate/kubernetes.md",
    "services/scheduler/README.md": "house/scheduler.md",
    "tests/README.md": "house/tests.md",
    "deploy/security.md": "operate/security.md",
    "CONTRIBUTING.md": "house/contributing.md",
    "SECURITY.md": "house/reporting.md",
    "CHANGELOG.md": "house/changelog.md",
}
"""File of the repository → page of the site. It is written once, beside what it is about."""

PICTURES = {
    "shared/policy/pictures": "mathematics/pictures",
    "services/replay/results": "decide/pictures",
}
"""Folder with pictures that those pages show → folder of the site."""

GENERATED = {
    "connect/contract.md": "contract",
    "operate/settings.md": "settings",
    "operate/commands.md": "commands",
    "operate/metrics.md": "metrics",
    "mutants.md": "mutants",
}
"""Page of the site → the module of this package whose `page` writes it."""


def place_of(path: str) -> str | None:
    """The site's page or picture for a file of the repository; None: the site does not have it.

    Args:
        path: from the repository's top, with slashes; a folder stands for its README.
    """
    if path.startswith(f"{PAGES_FOLDER}/"):
        inside = path.removeprefix(f"{PAGES_FOLDER}/")
        return inside if inside in GENERATED or (TOP / path).is_file() else None
    for file in (path, f"{path.rstrip('/')}/README.md"):
        if file in FOLDED:
            return FOLDED[file]
    folder, _, name = path.rpartition("/")
    if folder in PICTURES and name.endswith((".svg", ".png")):
        return f"{PICTURES[folder]}/{name}"
    return None


def source_of(page: str) -> str:
    """The file of the repository that a page of the site comes from."""
    folded = {place: file for file, place in FOLDED.items()}
    return folded.get(page, f"{PAGES_FOLDER}/{page}")
