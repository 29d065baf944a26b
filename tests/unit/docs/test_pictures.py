"""Pictures are what their script makes, and small enough to be read."""

import pytest

from deploy.docs import pictures, system
from deploy.docs.browser import BrowserUnavailable, screenshot
from deploy.docs.places import TOP
from shared.contracts.topics import TOPICS

FOLDER = TOP / "docs/pictures"
DRAW = "draw it again: python -m deploy.docs.pictures docs/pictures --only system.svg"


def test_each_picture_has_its_maker():
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(pictures.PICTURES)
    for name in pictures.PICTURES:
        assert (FOLDER / name).stat().st_size < 300_000


def test_the_system_is_drawn_as_it_is_kept():
    kept, drawn = (FOLDER / "system.svg").read_text(), system.draw().decode()
    assert texts(drawn) == texts(kept), DRAW
    assert drawn.count("<path") == kept.count("<path"), DRAW


def test_the_picture_of_the_system_knows_its_topics_and_no_others():
    known = {topic.name for topic in TOPICS}
    shown = {name for arrow in system.ARROWS for name in arrow.text.split(", ") if name}
    assert shown <= known
    # Workers that are optional are left out, and the topics that are one's own, or that few need.
    left_out = {"clock", "dead-letters", "host-parameters", "discoveries", "group-limits"}
    assert known - shown == left_out


def texts(svg):
    return [line.strip() for line in svg.splitlines() if "<text" in line]


def test_one_picture_is_written_where_it_is_asked_for(tmp_path):
    pictures.main([str(tmp_path / "new"), "--only", "system.svg"])
    assert (tmp_path / "new/system.svg").read_bytes() == system.draw()
    assert len(list((tmp_path / "new").iterdir())) == 1


async def test_without_a_browser_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr("deploy.docs.browser.shutil.which", lambda _: None)
    with pytest.raises(BrowserUnavailable, match="install it"):
        await screenshot("http://127.0.0.1/", 0.0, 100, 100)
