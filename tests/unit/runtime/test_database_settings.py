"""The settings about several databases."""

import re

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from pydantic import SecretStr

from shared.runtime.databases import at_database, databases_of, for_views, held_by
from shared.runtime.settings import SettingsError, load_settings

A, B = "postgresql://u:hidden@a/freshet", "postgresql://u:hidden@b/freshet"
READER_A, READER_B = "postgresql://reader@a/freshet", "postgresql://reader@b/freshet"


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch, tmp_path):
    for name in ("DATABASE_URL", "FRESHET_DATABASES", "FRESHET_VIEW_DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "freshet.toml").touch()
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
        ({"DATABASE_URL": B}, "DATABASE_URL is not the URL of shard 0"),
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


@pytest.mark.parametrize(
    "url",
    [
        "",
        A,
        "postgres://a",
        "postgresql:///freshet?host=/var/run/postgresql",
        "postgresql://u@%2Fvar%2Frun/freshet",
        "postgresql://u:50%25off@a:5432,b:5433,[::1]:5434/freshet?sslmode=verify-full",
        "postgresql://u:hid%40den@a/freshet?user=u@v@w",
        "postgresql://u:pässwörd%C3%A4@a/freshet",
        "host=a dbname=freshet",
        r" host = a password = 'hid \' den' user=u@v dbname=it's\ mine ",
    ],
)
def test_what_libpq_understands_is_taken(monkeypatch, url):
    assert conninfo_to_dict(url) is not None
    monkeypatch.setenv("DATABASE_URL", url)
    assert load_settings().database_url.get_secret_value() == url


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql://u:50%hidden@a/freshet", "database_url: a % in it is no code"),
        ("postgresql://u:hidden%00@a/freshet", "database_url: a % in it is no code"),
        ("postgresql://u:hid%ccden@a/freshet", "database_url: a % in it is no code"),
        ("postgresql://a/freshet?password=hid%ccc", "database_url: a % in it is no code"),
        ("postgresql://u:hid/den@a/freshet", "database_url: what follows the host is no port"),
        ("mysql://u:hidden@a/freshet", "database_url: it must begin with postgresql://"),
        ("postgresql+psycopg://u:hidden@a/freshet", "it must begin with postgresql://"),
        ("postgresql:/u:hidden@a/freshet", "database_url: it must begin with postgresql://"),
        ("host=a password=hidden\\ den hidden", "database_url: it must begin with postgresql://"),
        ("host=a password='hidden den", "database_url: it must begin with postgresql://"),
    ],
)
def test_what_libpq_would_quote_is_refused_before_it_sees_it(monkeypatch, url, said):
    with pytest.raises((psycopg.Error, ValueError)):
        int(conninfo_to_dict(url)["port"])  # One of them is a port to it, which it reads later.
    monkeypatch.setenv("DATABASE_URL", url)
    with pytest.raises(SettingsError, match=said) as caught:
        load_settings()
    assert not {"hid", "den"} & set(re.findall("hid|den", str(caught.value)))


@pytest.mark.parametrize("url", ["postgresql://u:hid@den@a/db", "postgresql://u:hid@den@a,b/db"])
def test_what_libpq_would_take_for_a_host_and_name_is_refused(monkeypatch, url):
    """It looks it up, and says which host there is none of."""
    assert "den" in conninfo_to_dict(url)["host"]
    monkeypatch.setenv("DATABASE_URL", url)
    with pytest.raises(SettingsError, match="database_url: there is more than one @") as caught:
        load_settings()
    assert "%40 for @" in str(caught.value)
    assert not re.findall("hid|den", str(caught.value))


@pytest.mark.parametrize("name", ["FRESHET_DATABASES", "FRESHET_VIEW_DATABASE_URL"])
def test_so_are_those_of_other_settings(monkeypatch, name):
    url = "postgresql://u:50%hidden@a/freshet"
    monkeypatch.setenv(name, f"0-63={url}" if name == "FRESHET_DATABASES" else url)
    with pytest.raises(SettingsError, match="is no code") as caught:
        load_settings()
    assert "hidden" not in str(caught.value)
