"""The site is built from all pages, and its links are its own."""

import logging
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from deploy.docs import site
from deploy.docs.places import FOLDED, GENERATED, TOP, place_of
from deploy.docs.site import turned


@pytest.mark.parametrize(
    ("source", "page", "text", "expected"),
    [
        (
            "docs/a.md",
            "a.md",
            "[x](start/index.md#what-you-see)",
            "[x](start/index.md#what-you-see)",
        ),
        (
            "docs/start/index.md",
            "start/index.md",
            "![x](../pictures/system.svg)",
            "![x](../pictures/system.svg)",
        ),
        (
            "docs/operate/index.md",
            "operate/index.md",
            "[x](../../deploy/security.md)",
            "[x](security.md)",
        ),
        (
            "shared/policy/README.md",
            "mathematics/tour.md",
            "![x](pictures/noise.svg)",
            "![x](pictures/noise.svg)",
        ),
        ("CONTRIBUTING.md", "house/contributing.md", "[x](docs/house/index.md)", "[x](index.md)"),
        ("docs/a.md", "a.md", "[the tour](../shared/policy/)", "[the tour](mathematics/tour.md)"),
        ("docs/a.md", "a.md", "see [pacing](../shared/pacing/).", "see pacing (`shared/pacing`)."),
        ("docs/a.md", "a.md", "[LICENSE](../LICENSE)", "LICENSE"),
        (
            "docs/a.md",
            "a.md",
            "[x](https://example.com) [y](#z)",
            "[x](https://example.com) [y](#z)",
        ),
        ("docs/a.md", "a.md", "[x](connect/contract.md#topics)", "[x](connect/contract.md#topics)"),
    ],
)
def test_links_become_the_sites_own(source, page, text, expected):
    assert turned(text, source, page) == expected


def test_no_two_files_have_one_place_and_none_is_written_twice():
    places = [*FOLDED.values(), *GENERATED]
    assert len(set(places)) == len(places)
    assert not [place for place in places if (TOP / "docs" / place).exists()]
    assert place_of("services/replay/results/n4.svg") == "decide/pictures/n4.svg"
    assert place_of("services/replay/results/n4.json") is None


def test_a_link_that_leads_nowhere_is_a_warning_which_fails_the_build(caplog):
    page = SimpleNamespace(file=SimpleNamespace(src_uri="index.md"))
    with caplog.at_level(logging.WARNING, logger="mkdocs.hooks.freshet"):
        site.on_page_markdown("[x](nowhere.md)", page=page, config=None, files=None)
    assert caplog.messages == ["docs/index.md:1: nowhere.md: there is no such file"]


def test_the_site_is_built_without_a_warning(tmp_path):
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path]
    done = subprocess.run(build, cwd=TOP, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    for place in [*FOLDED.values(), *GENERATED, "index.md", "promises.md"]:
        assert (tmp_path / place.replace(".md", ".html")).is_file()
    tour = (tmp_path / "mathematics/tour.html").read_text()
    assert '<img alt="Burst multipliers of two hosts" src="pictures/bursts.svg"' in tour
    loaded = [
        address
        for page in tmp_path.rglob("*.html")
        for address in re.findall(
            r'<(?:link|script|img)[^>]+(?:href|src)="(https?:[^"]+)"', page.read_text()
        )
    ]
    assert loaded == [], "the site loads nothing from elsewhere"
