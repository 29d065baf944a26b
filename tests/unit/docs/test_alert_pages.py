"""Every alert has a page, and every page an alert."""

import re
from pathlib import Path

import yaml

from deploy.docs.places import TOP

PAGES = "docs/operate/alerts"
SECTIONS = ["What it costs", "What to look at", "What to do", "How it was tried"]

TRIED = re.compile(r"^- `([\w/]+\.py)`: `(test_\w+)`$", re.MULTILINE)
"""A line of the last section: the file, and the test in it."""


def rules():
    groups = yaml.safe_load((TOP / "deploy/prometheus/alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def faults(rules, pages):
    """What does not fit together, of rules and the pages there are (name → text)."""
    found = []
    for rule in rules:
        page = f"{PAGES}/{rule['alert']}.md"
        if rule["annotations"].get("runbook") != page:
            found.append(f"{rule['alert']} does not name its page, {page}")
    named = [rule["alert"] for rule in rules]
    found += [f"{name} has no page" for name in named if name not in pages]
    found += [f"the page {name} has no alert" for name in pages if name not in named]
    for name, text in pages.items():
        if not text.startswith(f"# {name}\n\n**What it means.** "):
            found.append(f"the page {name} does not begin with what it means")
        if re.findall(r"^## (.+)$", text, re.MULTILINE) != SECTIONS:
            found.append(f"the page {name} does not have the sections {SECTIONS}")
        tried = TRIED.findall(text)
        if not tried:
            found.append(f"the page {name} names no test")
        found += [
            f"the page {name} names {test} of {file}"
            for file, test in tried
            if not there(file, test)
        ]
    return found


def there(file, test):
    path = TOP / "tests" / file
    return path.is_file() and f"def {test}(" in path.read_text()


def pages():
    found = {path.stem: path.read_text() for path in Path(TOP / PAGES).glob("*.md")}
    del found["index"]
    return found


def test_alerts_and_pages_fit_together():
    assert faults(rules(), pages()) == []


def test_the_index_has_all_of_them_with_their_severity():
    index = (TOP / PAGES / "index.md").read_text()
    rows = dict(re.findall(r"^\| \[(\w+)\]\(\w+\.md\) \| (\w+) \|", index, re.MULTILINE))
    assert rows == {rule["alert"]: rule["labels"]["severity"] for rule in rules()}


def test_the_site_lists_all_of_them():
    listed = re.findall(
        r"operate/alerts/(\w+)\.md$", (TOP / "mkdocs.yml").read_text(), re.MULTILINE
    )
    assert listed == ["index", *(rule["alert"] for rule in rules())]


def test_what_does_not_fit_is_found():
    [first, second, *_] = rules()
    texts = pages()
    kept = {first["alert"]: texts[first["alert"]]}
    assert faults([first], kept) == []
    assert faults([first, second], kept) == [f"{second['alert']} has no page"]
    assert faults([], kept) == [f"the page {first['alert']} has no alert"]
    [unnamed] = faults([first | {"annotations": {}}], kept)
    assert "does not name its page" in unnamed
    assert len(faults([first], {first["alert"]: "# Something else\n"})) == 3
    renamed = {first["alert"]: texts[first["alert"]].replace("`: `test_", "`: `test_no_")}
    assert all("names test_no_" in fault for fault in faults([first], renamed))
    assert faults([first], renamed)
