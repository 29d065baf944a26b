"""The site is built from all pages, and its links are its own."""

import logging
import re
import shutil
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


def build(config, target):
    """What `make docs` does, with another configuration and into another folder."""
    [recipe] = re.findall(r"-m mkdocs (.+)$", (TOP / "Makefile").read_text(), re.MULTILINE)
    command = [sys.executable, "-m", "mkdocs", *recipe.split(), "-f", config, "--site-dir", target]
    return subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)


@pytest.fixture
def own_pages(tmp_path):
    """A configuration with pages of its own, which are those of the site until one is changed."""
    pages = tmp_path / "pages"
    shutil.copytree(TOP / "docs", pages)
    hook = TOP / "deploy/docs/site.py"
    text = f"INHERIT: {TOP / 'mkdocs.yml'}\ndocs_dir: {pages}\nhooks: [{hook}]\n"
    (tmp_path / "mkdocs.yml").write_text(text)
    return tmp_path


@pytest.mark.slow(5)
def test_a_build_with_links_that_lead_nowhere_fails_and_names_them(own_pages):
    with (own_pages / "pages/index.md").open("a") as page:
        page.write("\n[x](nowhere.md) and [y](connect/contract.md#nowhere)\n")
    done = build(own_pages / "mkdocs.yml", own_pages / "site")

    assert done.returncode != 0
    assert ": nowhere.md: there is no such file" in done.stderr
    assert "does not contain an anchor '#nowhere'" in done.stderr


@pytest.mark.slow(5)
def test_the_site_is_built_without_a_warning(tmp_path):
    done = build(TOP / "mkdocs.yml", tmp_path)

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
