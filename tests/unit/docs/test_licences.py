"""What is shipped is under permissive licences, but for what is listed with its reason."""

import re
from email.message import Message
from importlib import metadata

import pytest

from deploy.docs.places import TOP

ALLOWED = {"psycopg", "psycopg-binary"}
"""Copyleft that is shipped all the same: docs/house/licences.md says why."""

COPYLEFT = re.compile(
    r"\b[AL]?GPL|General Public License|\bEUPL|\bSSPL|\bCC-BY-(?:NC|SA)|\bOSL-", re.IGNORECASE
)


def shipped():
    lock = (TOP / "requirements.lock").read_text()
    return re.findall(r"^([A-Za-z0-9._-]+)==", lock, re.MULTILINE)


def licence_of(about):
    """What a distribution says of its licence: SPDX, else its classifiers and the field's title.

    The old field holds whole licences too, which name those of others: the title counts.
    """
    expression = about.get("License-Expression")
    if expression:
        return expression
    classifiers = [c for c in about.get_all("Classifier") or () if c.startswith("License ::")]
    field = (about.get("License") or "").strip().splitlines()
    return "; ".join([*classifiers, *field[:1]])


def is_copyleft(licence):
    return COPYLEFT.search(licence) is not None


@pytest.mark.parametrize("name", shipped())
def test_nothing_copyleft_is_shipped(name):
    licence = licence_of(metadata.metadata(name))
    assert licence, f"{name} does not say under which licence it is: look, and decide"
    assert is_copyleft(licence) == (name in ALLOWED), f"{name}: {licence}"


def test_the_list_has_only_what_is_shipped_and_explained():
    page = (TOP / "docs/house/licences.md").read_text()
    assert set(shipped()) >= ALLOWED
    assert len(shipped()) > 40
    [row] = [line for line in page.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`([\w-]+)`", row.split("|")[1])) == ALLOWED


@pytest.mark.parametrize(
    "header",
    [
        "License-Expression: LGPL-3.0-only",
        "License-Expression: MIT AND GPL-2.0-or-later",
        "License: GPLv3",
        "License: AGPL-3.0",
        "License: GNU Affero General Public License v3\n        and more",
        "Classifier: License :: OSI Approved :: GNU Lesser General Public License v3 (LGPLv3)",
    ],
)
def test_copyleft_is_found(header):
    about = Message()
    for line in header.replace("\n  ", " ").split("\n"):
        about[line.partition(": ")[0]] = line.partition(": ")[2]
    assert is_copyleft(licence_of(about))


def test_a_licence_that_names_another_is_not_it():
    about = Message()
    about["Classifier"] = "License :: OSI Approved :: BSD License"
    about["License"] = "Copyright (c) the authors\n\nParts are under the GPL, with an exception."
    assert not is_copyleft(licence_of(about))


def test_the_project_says_its_own():
    text = (TOP / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
    assert 'license = "Apache-2.0"' in (TOP / "pyproject.toml").read_text()
