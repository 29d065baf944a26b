"""The settings about several databases."""

import pytest
from pydantic import SecretStr

from shared.runtime.databases import at_database, databases_of, for_views, held_by
from shared.runtime.settings import SettingsError, load_settings

A, B = "postgresql://u:hidden@a/freshet", "postgresql://u:hidden@b/freshet"
READER_A, READER_B = "postgresql://reader@a/freshet", "postgresql://reader@b/freshet"


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch, tmp_path):
    for name in ("DATABASE_URL", "FRESHET_DATABASES", "FRESHET_VIEW_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FRESHET_SETTINGS_FILE", str(tmp_path / "freshet.toml"))


def test_without_it_one_database_has_everything(monkeypatch):
    monkeypatch.setenv("DATABASE_URL", A)
    settings = load_settings()

    assert databases_of(settings).home.url == A
    assert held_by(settings) is None


def test_the_home_is_the_database_of_all_who_know_of_one(monkeypatch):
    monkeypatch.setenv("FRESHET_DATABASES", f"0-31={A},32-63={B}")
    settings = load_settings()

    assert settings.database_url.get_secret_value() == A
    assert [held_by(at_database(settings, one)) for one in databases_of(settings).each] == [
        "0-31/64",
        "32-63/64",
    ]
    assert "hidden" not in repr(settings)


def test_they_may_stand_in_a_file_a_line_each(monkeypatch, tmp_path):
    file = tmp_path / "databases"
    file.write_text(f"0-31={A}\n32-63={B}\n")
    monkeypatch.setenv("FRESHET_DATABASES_FILE", str(file))

    assert [one.url for one in databases_of(load_settings()).each] == [A, B]


def test_the_number_of_shards_may_be_a_multiple_of_those_in_the_ranges(monkeypatch):
    monkeypatch.setenv("FRESHET_DATABASES", f"0-31={A},32-63={B}")
    assert load_settings(partitions=128).partitions == 128
    with pytest.raises(SettingsError, match="ranges are of 64 shards, and partitions is 96"):
        load_settings(partitions=96)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"FRESHET_DATABASES": f"0-30={A},32-63={B}"}, "databases: no range has shard 31"),
        ({"DATABASE_URL": B}, "DATABASE_URL is not the URL of the first"),
        ({"FRESHET_VIEW_DATABASE_URL": READER_A}, "give view_databases"),
        (
            {"FRESHET_VIEW_DATABASES": f"0-30={READER_A},31-63={READER_B}"},
            "view_databases: the ranges differ",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused_without_a_secret(monkeypatch, more, said):
    monkeypatch.setenv("FRESHET_DATABASES", f"0-31={A},32-63={B}")
    for name, value in more.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=said) as caught:
        load_settings()
    assert "hidden" not in str(caught.value)


def test_who_looks_for_others_uses_the_readers_users(monkeypatch):
    monkeypatch.setenv("FRESHET_DATABASES", f"0-31={A},32-63={B}")
    monkeypatch.setenv("FRESHET_VIEW_DATABASES", f"0-31={READER_A},32-63={READER_B}")
    settings = for_views(load_settings())

    assert settings.database_url == SecretStr(READER_A)
    assert [one.url for one in databases_of(settings).each] == [READER_A, READER_B]


def test_views_of_one_database_are_as_before(monkeypatch):
    monkeypatch.setenv("DATABASE_URL", A)
    assert for_views(load_settings()).database_url == SecretStr(A)
    monkeypatch.setenv("FRESHET_VIEW_DATABASE_URL", READER_A)
    assert for_views(load_settings()).database_url == SecretStr(READER_A)
