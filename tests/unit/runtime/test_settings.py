"""Settings: sources in order, and errors that name the setting and say what to do."""

import json
import os
import re
import traceback

import pytest

from shared.runtime.clock import AcceleratedClock, SystemClock
from shared.runtime.settings import Settings, SettingsError, load_settings


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.startswith("FRESHET_") or name in {"KAFKA_BOOTSTRAP_SERVERS", "DATABASE_URL"}:
            monkeypatch.delenv(name)
    (tmp_path / "freshet.toml").touch()
    monkeypatch.setenv("FRESHET_SETTINGS_FILE", str(tmp_path / "freshet.toml"))


def test_the_defaults_are_for_this_machine():
    settings = load_settings()
    assert settings.kafka_bootstrap_servers == "127.0.0.1:9092"
    assert settings.http_host == "127.0.0.1"
    assert isinstance(settings.clock(), SystemClock)
    assert settings.instance


def test_arguments_go_before_the_environment_and_that_before_the_file(monkeypatch, tmp_path):
    (tmp_path / "freshet.toml").write_text(
        'partitions = 8\ntopic_prefix = "file-"\nlog_level = "error"\n'
    )
    monkeypatch.setenv("FRESHET_PARTITIONS", "16")
    monkeypatch.setenv("FRESHET_TOPIC_PREFIX", "environment-")
    settings = load_settings(partitions=32)
    assert (settings.partitions, settings.topic_prefix, settings.log_level) == (
        32,
        "environment-",
        "error",
    )
    assert settings.topic("signals") == "environment-signals"


def test_the_two_that_everybody_needs_carry_no_prefix(monkeypatch):
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "broker:1")
    monkeypatch.setenv("DATABASE_URL", "postgresql://u:hidden@db/x")
    settings = load_settings()
    assert settings.kafka_bootstrap_servers == "broker:1"
    assert settings.database_url.get_secret_value() == "postgresql://u:hidden@db/x"
    assert "hidden" not in repr(settings)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PARTITIONS", "0"),
        ("PARTITIONS", "many"),
        ("CLOCK_SPEED", "-1"),
        ("LOG_FORMAT", "xml"),
        ("HTTP_HOST", ""),
        ("HTTP_PORT", "70000"),
        ("SIGNAL_MAX_AGE_DAYS", "0"),
        ("SILENT_AFTER_SECONDS", "nan"),
        ("INSTANCE", ""),
        ("INSTANCE", "a" * 201),
        ("GROUP_CRAWLS_PER_SECOND", "inf"),
        ("GROUP_CRAWLS_PER_SECOND", "1e7"),
        ("DEFAULT_HOST_CRAWLS_PER_SECOND", "inf"),
        ("SIGNAL_DEBOUNCE_SECONDS", "inf"),
        ("COORDINATOR_LEASE_SECONDS", "inf"),
        ("EFFECTIVE_LEAD_SECONDS", "inf"),
        ("TICK_SECONDS", "1e300"),
        ("KAFKA_SESSION_TIMEOUT_SECONDS", "1e7"),
        ("KAFKA_SESSION_TIMEOUT_SECONDS", "1e-9"),
        ("REPLICATION_FACTOR", "100000"),
    ],
)
def test_a_wrong_value_is_named(monkeypatch, name, value):
    monkeypatch.setenv(f"FRESHET_{name}", value)
    with pytest.raises(SettingsError, match=name.lower()):
        load_settings()


@pytest.mark.parametrize("setting", ["signal_source_keys", "receiver_tokens"])
@pytest.mark.parametrize(
    ("given", "reason"),
    [("", "empty"), (" ", "space"), ("t0ken\n", "line break"), ("t0ken\x00", "control")],
)
def test_a_secret_that_no_header_can_show_is_refused_and_not_shown(
    monkeypatch, setting, given, reason
):
    """An empty one is what a template makes of a variable that is not set."""
    monkeypatch.setenv(f"FRESHET_{setting.upper()}", json.dumps({"cms": given, "shop": "good"}))
    with pytest.raises(SettingsError, match=rf"{setting}\.cms: .*{reason}") as refused:
        load_settings()
    assert "t0ken" not in "".join(traceback.format_exception(refused.value))
    assert "shop" not in str(refused.value)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("nginx", "'nginx' is neither an address nor a network, such as 10.0.0.1 or 10.0.0.0/8"),
        ("10.0.0.0/33", "'10.0.0.0/33' is neither"),
        ("", "'' is neither"),
        ("10.0.0.1/8", "write 10.0.0.1 or 10.0.0.0/8"),
        ("2001:db8::1/32", "write 2001:db8::1 or 2001:db8::/32"),
    ],
)
def test_a_proxy_that_is_neither_address_nor_network_is_named(monkeypatch, given, reason):
    monkeypatch.setenv("FRESHET_RECEIVER_TRUSTED_PROXIES", json.dumps(["10.0.0.0/8", given]))
    with pytest.raises(SettingsError, match=r"receiver_trusted_proxies\.1: .*" + re.escape(reason)):
        load_settings()


def test_brackets_within_one_another_are_no_setting(monkeypatch):
    monkeypatch.setenv("FRESHET_SIGNAL_SOURCES", "[" * 100_000)
    with pytest.raises(SettingsError, match="too many brackets within one another"):
        load_settings()


def test_lists_that_are_no_json_are_named_and_not_shown(monkeypatch):
    monkeypatch.setenv("FRESHET_SIGNAL_SOURCES", "sitemaps,cms")
    with pytest.raises(SettingsError, match=r"^signal_sources: .* environment is not JSON$"):
        load_settings()
    monkeypatch.delenv("FRESHET_SIGNAL_SOURCES")
    monkeypatch.setenv("FRESHET_SIGNAL_SOURCE_KEYS", "cms=hidden")
    with pytest.raises(SettingsError, match=r"^signal_source_keys: [^=]* not JSON$"):
        load_settings()


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("kafka", "kafka:9092"),
        ("a:1,", "a:1"),
        ("a:1, b_2 ,10.0.0.1:65535", "a:1,b_2:9092,10.0.0.1:65535"),
        ("[::1],[2001:db8::7]:9093", "[::1]:9092,[2001:db8::7]:9093"),
    ],
)
def test_brokers_have_a_port_whether_it_is_said_or_not(monkeypatch, given, taken):
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", given)
    assert load_settings().kafka_bootstrap_servers == taken


@pytest.mark.parametrize("given", ["", ",", "a:x", "a:1,b:70000", "PLAINTEXT://kafka:9092", "a:"])
def test_what_is_no_address_of_a_broker_is_refused(monkeypatch, given):
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", given)
    with pytest.raises(SettingsError, match=r"KAFKA_BOOTSTRAP_SERVERS: .* such as kafka:9092"):
        load_settings()


def test_every_wrong_value_is_named_at_once(monkeypatch):
    monkeypatch.setenv("FRESHET_PARTITIONS", "0")
    monkeypatch.setenv("FRESHET_CLOCK_SPEED", "x")
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert "partitions" in str(caught.value)
    assert "clock_speed" in str(caught.value)


def test_a_name_that_is_no_setting_is_an_error_not_ignored(monkeypatch):
    monkeypatch.setenv("FRESHET_PARTITONS", "8")
    with pytest.raises(SettingsError, match="FRESHET_PARTITONS"):
        load_settings()


@pytest.mark.parametrize(
    ("text", "reason"),
    [("partitions = ", "TOML"), ("no_such = 1", "no_such"), ("partitions = 0", "partitions")],
)
def test_a_wrong_file_is_an_error(tmp_path, text, reason):
    (tmp_path / "freshet.toml").write_text(text)
    with pytest.raises(SettingsError, match=reason):
        load_settings()


def test_sasl_needs_a_user_and_a_password(monkeypatch):
    monkeypatch.setenv("FRESHET_KAFKA_SECURITY_PROTOCOL", "SASL_SSL")
    with pytest.raises(SettingsError, match="kafka_sasl_password"):
        load_settings()


@pytest.mark.parametrize(
    ("given", "unused"),
    [
        ({"kafka_ssl_cafile": "ca.pem"}, "kafka_ssl_cafile"),
        ({"kafka_ssl_certfile": "a", "kafka_ssl_keyfile": "b"}, "certfile and kafka_ssl_keyfile"),
        ({"kafka_sasl_username": "u", "kafka_sasl_password": "hidden"}, "kafka_sasl_username"),
        (
            {"kafka_ssl_cafile": "ca.pem", "kafka_security_protocol": "SASL_PLAINTEXT"}
            | {"kafka_sasl_username": "u", "kafka_sasl_password": "hidden"},
            "kafka_ssl_cafile",
        ),
        (
            {"kafka_sasl_username": "u", "kafka_security_protocol": "SSL"},
            "kafka_sasl_username",
        ),
    ],
)
def test_nothing_goes_in_the_open_where_tls_or_a_password_is_set_up(given, unused):
    with pytest.raises(SettingsError, match=f"kafka_security_protocol is .*{unused}") as caught:
        load_settings(**given)
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("name", ["FRESHET_CLOCK_GATE", "FRESHET_KAFKA_SSL_CAFILE"])
def test_an_empty_text_is_no_file(monkeypatch, name):
    """As a path it is the folder one is in: there, time would begin in 1970."""
    monkeypatch.setenv(name, "")
    with pytest.raises(SettingsError, match=r"_(gate|cafile): .*it is empty: name a file"):
        load_settings()


@pytest.mark.parametrize("named", ["frehset.toml", "", "."])
def test_a_settings_file_that_is_named_must_be_one(monkeypatch, tmp_path, named):
    monkeypatch.setenv("FRESHET_SETTINGS_FILE", named and str(tmp_path / named))
    with pytest.raises(SettingsError, match=r"FRESHET_SETTINGS_FILE names '.*', which is no file"):
        load_settings()


def test_where_none_is_named_there_need_be_none(monkeypatch, tmp_path):
    monkeypatch.delenv("FRESHET_SETTINGS_FILE")
    monkeypatch.chdir(tmp_path)
    assert load_settings().partitions == 64
    monkeypatch.setenv("FRESHET_SETTINGS_FILE", os.devnull)
    assert load_settings().partitions == 64


def test_a_gate_makes_a_simulated_clock(tmp_path):
    clock = Settings(clock_gate=tmp_path / "gate", clock_origin=5.0, clock_speed=10.0).clock()
    assert isinstance(clock, AcceleratedClock)
    assert (clock.now(), clock.span(2.0), clock.speed) == (5.0, 20.0, 10.0)


@pytest.mark.parametrize("variable", ["DATABASE_URL_FILE", "FRESHET_DATABASE_URL_FILE"])
def test_a_secret_may_stand_in_a_file_of_its_own(monkeypatch, tmp_path, variable):
    (tmp_path / "url").write_text("postgresql://u:hidden@db/x\n")
    monkeypatch.setenv(variable, str(tmp_path / "url"))
    settings = load_settings()
    assert settings.database_url.get_secret_value() == "postgresql://u:hidden@db/x"
    assert "hidden" not in repr(settings)


def test_the_keys_of_sources_may_stand_in_a_file_too(monkeypatch, tmp_path):
    (tmp_path / "keys").write_text('{"cms": "secret"}')
    monkeypatch.setenv("FRESHET_SIGNAL_SOURCE_KEYS_FILE", str(tmp_path / "keys"))
    assert load_settings().signal_source_keys["cms"].get_secret_value() == "secret"


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "cannot be read"), (b"", "empty"), (b"\xff", "not text"), (b"x" * 70_000, "longer")],
)
def test_a_file_without_a_secret_is_named_and_its_content_is_not(
    monkeypatch, tmp_path, content, reason
):
    path = tmp_path / "password"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv("FRESHET_KAFKA_SASL_PASSWORD_FILE", str(path))
    with pytest.raises(SettingsError, match=reason) as caught:
        load_settings()
    assert "FRESHET_KAFKA_SASL_PASSWORD_FILE" in str(caught.value)
    assert "xxx" not in str(caught.value)


def test_keys_that_are_no_json_are_not_shown(monkeypatch, tmp_path):
    (tmp_path / "keys").write_text("cms=hidden")
    monkeypatch.setenv("FRESHET_SIGNAL_SOURCE_KEYS_FILE", str(tmp_path / "keys"))
    with pytest.raises(SettingsError, match="not JSON") as caught:
        load_settings()
    assert "hidden" not in str(caught.value)


def test_what_stands_in_the_environment_goes_before_a_file(monkeypatch, tmp_path):
    (tmp_path / "url").write_text("postgresql://a@db/x")
    monkeypatch.setenv("DATABASE_URL_FILE", str(tmp_path / "url"))
    monkeypatch.setenv("DATABASE_URL", "postgresql://b@db/x")
    assert load_settings().database_url.get_secret_value() == "postgresql://b@db/x"


def test_an_empty_variable_does_not_go_before_a_file(monkeypatch, tmp_path):
    """As templates leave it where the file is the one that is meant."""
    (tmp_path / "url").write_text("postgresql://a@db/x")
    monkeypatch.setenv("DATABASE_URL_FILE", str(tmp_path / "url"))
    monkeypatch.setenv("DATABASE_URL", "")
    assert load_settings().database_url.get_secret_value() == "postgresql://a@db/x"


def test_two_files_for_one_secret_are_an_error(monkeypatch, tmp_path):
    (tmp_path / "url").write_text("postgresql://a@db/x")
    monkeypatch.setenv("DATABASE_URL_FILE", str(tmp_path / "url"))
    monkeypatch.setenv("FRESHET_DATABASE_URL_FILE", str(tmp_path / "url"))
    with pytest.raises(SettingsError, match="unset one"):
        load_settings()


def test_what_stands_beside_secrets_may_come_by_a_file_too(monkeypatch, tmp_path):
    """A user in one secret with the password; streams' addresses that have passwords in them."""
    monkeypatch.setenv("FRESHET_KAFKA_SECURITY_PROTOCOL", "SASL_SSL")
    monkeypatch.setenv("FRESHET_KAFKA_SASL_PASSWORD", "hidden")
    streams = '[{"url": "https://u:p@example.com/", "source": "a", "format": "wikimedia"}]'
    for name, text in {"KAFKA_SASL_USERNAME": "crawler", "POLLER_STREAMS": streams}.items():
        (tmp_path / name).write_text(f"{text}\n")
        monkeypatch.setenv(f"FRESHET_{name}_FILE", str(tmp_path / name))
    settings = load_settings()
    assert settings.kafka_sasl_username == "crawler"
    assert settings.poller_streams[0]["url"] == "https://u:p@example.com/"


def test_only_secrets_are_read_from_files(monkeypatch, tmp_path):
    (tmp_path / "partitions").write_text("8")
    monkeypatch.setenv("FRESHET_PARTITIONS_FILE", str(tmp_path / "partitions"))
    with pytest.raises(SettingsError, match="FRESHET_PARTITIONS_FILE"):
        load_settings()
