"""Every link of the documentation leads somewhere, and the checker of links is not blind."""

import pytest
from documents import documents

from deploy.docs.links import anchors, faults, links
from deploy.docs.places import FOLDED, PICTURES, TOP


@pytest.mark.parametrize("file", documents())
def test_links_lead_somewhere(file):
    assert faults(file, (TOP / file).read_text(encoding="utf-8")) == []


def test_the_documents_are_those_that_people_read():
    found = set(documents())
    assert {"README.md", "CHANGELOG.md", "docs/index.md", "shared/policy/README.md"} <= found
    assert set(FOLDED) <= found
    assert all((TOP / folder).is_dir() for folder in PICTURES)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("docs/start/nowhere.md", "no such file"),
        ("docs/start/index.md#nowhere", "no such heading"),
        ("#nowhere", "no such heading"),
        ("services/nothing/", "no such file"),
        ("Makefile#docs", "only Markdown"),
        ("../elsewhere.md", "out of the repository"),
        ("docs/pictures/nothing.png", "no such file"),
    ],
)
def test_a_link_that_leads_nowhere_is_found(target, reason):
    [fault] = faults("README.md", f"# Here\n\nSee [there]({target}).\n")
    assert fault.startswith(f"README.md:3: {target}: ")
    assert reason in fault


@pytest.mark.parametrize(
    "target",
    [
        "docs/start/index.md",
        "docs/start/index.md#what-you-see",
        "services/scheduler/",
        "Makefile",
        "#what-is-λ₀",
        "https://example.com/nowhere",
        "docs/connect/contract.md#topics",
    ],
)
def test_a_link_that_leads_somewhere_is_none(target):
    assert faults("README.md", f"# What is `λ₀`?\n\nSee [there]({target}).\n") == []


def test_what_stands_in_code_is_no_link():
    text = "`[a](b)`\n\n```sh\n[c](d)\n```\n\n[`e`](f) ``[g](`h)`` ![i [j]](k)\n"
    assert [(link.text, link.target, link.line) for link in links(text)] == [
        ("`e`", "f", 7),
        ("i [j]", "k", 7),
    ]
    assert [link.is_image for link in links(text)] == [False, True]


def test_anchors_are_those_of_headings_alone():
    text = "# One `two`\n\n```sh\n# no heading\n```\n\n### What the [lab](x.md) says, in short #\n"
    assert anchors(text) == {"one-two", "what-the-lab-says-in-short"}
