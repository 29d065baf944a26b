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


LEAD_NOWHERE = "\n[x](nowhere.md) and [y](connect/contract.md#nowhere)\n"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """What `make docs` does, in another folder and with two links more, and what it says: the site
    is built once, as it takes seconds."""
    folder = tmp_path_factory.mktemp("site")
    pages = shutil.copytree(TOP / "docs", folder / "pages")
    with (pages / "index.md").open("a") as page:
        page.write(LEAD_NOWHERE)
    hook = TOP / "deploy/docs/site.py"
    config = folder / "mkdocs.yml"
    config.write_text(f"INHERIT: {TOP / 'mkdocs.yml'}\ndocs_dir: {pages}\nhooks: [{hook}]\n")
    [recipe] = re.findall(r"-m mkdocs (.+)$", (TOP / "Makefile").read_text(), re.MULTILINE)
    command = [sys.executable, "-m", "mkdocs", *recipe.split(), "-f", config]
    done = subprocess.run(
        [*command, "--site-dir", folder / "site"],
        cwd=TOP,
        capture_output=True,
        text=True,
        check=False,
    )
    return done, folder / "site"


@pytest.mark.slow(5)
def test_a_build_with_links_that_lead_nowhere_fails_and_names_them_alone(built):
    done, _ = built
    assert done.returncode != 0
    named = [line for line in done.stderr.splitlines() if line.startswith(("WARNING", "ERROR"))]
    assert len(named) == 2, named
    assert ": nowhere.md: there is no such file" in named[0]
    assert "does not contain an anchor '#nowhere'" in named[1]


@pytest.mark.slow(5)
def test_the_site_has_every_page_and_loads_nothing_from_elsewhere(built):
    _, site_folder = built
    for place in [*FOLDED.values(), *GENERATED, "index.md", "promises.md"]:
        assert (site_folder / place.replace(".md", ".html")).is_file()
    tour = (site_folder / "mathematics/tour.html").read_text()
    assert '<img alt="Burst multipliers of two hosts" src="pictures/bursts.svg"' in tour
    loaded = [
        address
        for page in site_folder.rglob("*.html")
        for address in re.findall(
            r'<(?:link|script|img)[^>]+(?:href|src)="(https?:[^"]+)"', page.read_text()
        )
    ]
    assert loaded == []
