"""The tour of the policy package: complete, its examples hold, and its pictures are current."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import numpy as np
import pytest

import shared.policy
from shared.policy import tour
from shared.policy.model import PageParameters

FOLDER = Path(tour.__file__).parent
TOUR = (FOLDER / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", TOUR, re.DOTALL | re.MULTILINE)
NAMED = {name.split(".")[-1] for name in re.findall(r"`([A-Za-z_][\w.]*)`", TOUR)}
NUMBER = re.compile(rb"-?\d+\.\d+")
HASH = re.compile(rb"\b[mpC][0-9a-f_]{10,}\b")
REDRAW = "draw them again: python -m shared.policy.tour shared/policy/pictures"


def modules():
    found = pkgutil.walk_packages(shared.policy.__path__, "shared.policy.")
    return [module.name for module in found if module.name != tour.__name__]


def public_names(module):
    """Functions, compiled functions and classes that the module itself defines."""
    return {
        name
        for name, value in vars(importlib.import_module(module)).items()
        if not name.startswith("_")
        and callable(value)
        and getattr(value, "__module__", None) == module
    }


@pytest.mark.parametrize("module", modules())
def test_every_public_function_is_named(module):
    missing = public_names(module) - NAMED
    assert not missing, f"name them in shared/policy/README.md: {sorted(missing)}"


def test_every_part_of_the_page_model_is_named():
    public = {name for name in vars(PageParameters) if not name.startswith("_")}
    fields = set(PageParameters.__dataclass_fields__)
    assert public - fields - NAMED == set()


def test_nothing_is_named_that_does_not_exist():
    known = {part for module in modules() for part in module.split(".")}
    known |= {name for module in modules() for name in public_names(module)}
    known |= set(dir(PageParameters))
    assert {name for name in NAMED if "_" in name} - known == set()


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_examples(example):
    test = doctest.DocTestParser().get_doctest(example, {}, "README.md", None, 0)
    failures = []
    doctest.DocTestRunner().run(test, out=failures.append)
    assert test.examples
    assert not failures, "".join(failures)


def test_every_example_is_tested():
    assert TOUR.count("```python") == len(EXAMPLES)
    assert TOUR.count(">>>") == sum(example.count(">>>") for example in EXAMPLES)


def test_every_picture_is_shown():
    shown = re.findall(r"!\[[^]]+\]\(pictures/([^)]+)\)", TOUR)
    assert sorted(shown) == sorted(tour.PICTURES)
    assert sorted(path.name for path in (FOLDER / "pictures").iterdir()) == sorted(shown)


@pytest.mark.parametrize("name", tour.PICTURES)
def test_pictures_are_current(name):
    kept = HASH.sub(b"#", (FOLDER / "pictures" / name).read_bytes())
    drawn = HASH.sub(b"#", tour.draw(name))
    assert len(kept) < 60_000
    assert NUMBER.split(drawn) == NUMBER.split(kept), REDRAW
    coordinates = [np.array(NUMBER.findall(svg), dtype=float) for svg in (drawn, kept)]
    np.testing.assert_allclose(*coordinates, atol=0.05, err_msg=REDRAW)


def test_command_writes_every_picture(tmp_path, monkeypatch):
    monkeypatch.setattr(tour, "PICTURES", {"noise.svg": tour.noise_picture})
    tour.main([str(tmp_path / "new")])
    written = (tmp_path / "new" / "noise.svg").read_bytes()
    assert written == tour.draw("noise.svg")
    assert b"</svg>" in written
