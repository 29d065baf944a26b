"""Settings that cannot work beside each other are refused at the start, with their names."""

import asyncio
import json

import pytest
from aiokafka.errors import InvalidSessionTimeoutError
from pydantic import ValidationError

from shared.contracts.codec import decode, encode
from shared.contracts.messages import Signal
from shared.contracts.topics import CRAWL_REQUESTS
from shared.runtime.polling import Polling
from shared.runtime.settings import Settings, SettingsError, load_settings
from shared.runtime.worker import DEFAULT_PORTS, check_ports
from shared.units import SECONDS_PER_DAY


@pytest.fixture(autouse=True)
def no_settings_file(monkeypatch, tmp_path):
    (tmp_path / "freshet.toml").touch()
    monkeypatch.setenv("FRESHET_SETTINGS_FILE", str(tmp_path / "freshet.toml"))


@pytest.mark.parametrize(
    ("contradiction", "agreement"),
    [
        ({"report_seconds": 3.0}, {"report_seconds": 1.5}),
        ({"silent_after_seconds": 1.0}, {"silent_after_seconds": 1.0, "report_seconds": 0.5}),
        ({"tick_seconds": 15.0}, {"tick_seconds": 15.0, "stall_seconds": 61.0}),
        ({"stall_seconds": 2.0, "batch_linger_seconds": 0.5}, {"stall_seconds": 2.0}),
        ({"poller_longest_seconds": 30.0}, {"poller_longest_seconds": 60.0}),
        (
            {"default_max_age_days": 200.0 / SECONDS_PER_DAY},
            {
                "default_max_age_days": 200.0 / SECONDS_PER_DAY,
                "least_interval_seconds": 199.0,
            },
        ),
        (
            {"kafka_ssl_keyfile": "key", "kafka_security_protocol": "SSL"},
            {
                "kafka_ssl_keyfile": "key",
                "kafka_ssl_certfile": "cert",
                "kafka_security_protocol": "SSL",
            },
        ),
        ({"clock_speed": 10.0}, {"clock_speed": 10.0, "clock_gate": "gate"}),
        ({"clock_origin": 10.0}, {"clock_origin": 10.0, "clock_gate": "gate"}),
    ],
)
def test_settings_that_contradict_each_other_are_refused_by_name(
    monkeypatch, contradiction, agreement
):
    load_settings(**agreement)
    for name, value in contradiction.items():
        monkeypatch.setenv(f"FRESHET_{name.upper()}", str(value))
    with pytest.raises(SettingsError) as refused:
        load_settings()
    assert all(
        name in str(refused.value) for name in contradiction if name != "kafka_security_protocol"
    )


def test_a_request_is_open_for_no_longer_than_crawl_requests_are_kept():
    kept = float(CRAWL_REQUESTS.config["retention.ms"]) / 1000
    Settings(request_timeout_seconds=kept)
    with pytest.raises(ValidationError, match="request_timeout_seconds"):
        Settings(request_timeout_seconds=kept + 1.0)


@pytest.mark.parametrize("name", ["", "a" * 129, "two\nlines"])
@pytest.mark.parametrize("setting", ["signal_sources", "signal_source_keys", "receiver_tokens"])
def test_a_source_that_no_message_can_name_is_refused(monkeypatch, setting, name):
    given = [name] if setting == "signal_sources" else {name: "hidden"}
    monkeypatch.setenv(f"FRESHET_{setting.upper()}", json.dumps(given))
    with pytest.raises(SettingsError, match=setting) as refused:
        load_settings()
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("name", ["a", "é" * 128, "a b"])
def test_a_source_that_messages_can_name_is_taken(name):
    decode(Signal, encode(Signal(url="https://example.com/", source=name)))
    assert Settings(signal_sources=(name,)).signal_sources == (name,)


@pytest.mark.parametrize(
    ("setting", "wrong", "right"),
    [
        ("receiver_url", "pings.example.com", "https://pings.example.com"),
        ("receiver_url", "ftp://pings.example.com", ""),
        ("indexnow_engines", "https://", "https://www.indexnow.org/searchengines.json"),
        ("scheduler_urls", "http://a:6067 b:6067", " http://a:6067  http://[::1]:6067 "),
        ("scheduler_urls", "http://[::1:6067", ""),
        ("frontier_calls", "3000000000", "2000000000"),
        ("frontier_max_message_bytes", "3000000000", "2000000000"),
        ("stall_seconds", "1", "2"),
        ("topic_prefix", "a b/", "a.b-"),
        ("topic_prefix", "x" * 201, "x" * 200),
    ],
)
def test_what_no_worker_could_go_by_is_refused_at_the_start(monkeypatch, setting, wrong, right):
    monkeypatch.setenv(f"FRESHET_{setting.upper()}", wrong)
    with pytest.raises(SettingsError, match=f"(?i){setting}"):
        load_settings()
    monkeypatch.setenv(f"FRESHET_{setting.upper()}", right)
    assert str(getattr(load_settings(), setting)).split() in (right.split(), [f"{right}.0"])


async def test_a_session_timeout_that_the_broker_refuses_is_named():
    class Silent:
        async def getmany(self, *_places, timeout_ms):
            await asyncio.sleep(3600)

    async def refused():
        raise InvalidSessionTimeoutError

    with pytest.raises(SettingsError, match="FRESHET_KAFKA_SESSION_TIMEOUT_SECONDS"):
        await Polling(Silent()).beside(refused)


@pytest.mark.parametrize("worker", ["receiver", "frontier"])
def test_a_worker_has_two_ports_of_its_own(worker):
    name = f"{worker}_port"
    check_ports(Settings(), worker, name)
    for given in ({name: DEFAULT_PORTS[worker]}, {name: 7000, "http_port": 7000}):
        with pytest.raises(SettingsError, match=rf"{name} is \d+, .*http_port"):
            check_ports(Settings(**given), worker, name)
