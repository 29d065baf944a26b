"""Settings that are read again: which hold at once, and which wait for a restart."""

import logging

import pytest
from pydantic import SecretStr

from services.ingester.handler import SignalHandler
from services.ingester.sources import Verdict
from services.receiver.rates import Rates
from services.receiver.refusing import Refused
from services.receiver.tokens import Tokens
from services.receiver.worker import Receiver
from shared.runtime.clock import ManualClock
from shared.runtime.reloading import RELOADED, Reloading
from shared.runtime.settings import FILE_VARIABLE, Settings, SettingsError, load_settings


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "freshet.toml"
    path.write_text("")
    monkeypatch.setenv(FILE_VARIABLE, str(path))
    level = logging.getLogger().level
    yield path
    logging.getLogger().setLevel(level)


def test_every_setting_that_is_read_again_is_one():
    assert Settings.model_fields.keys() >= RELOADED


def test_what_may_change_holds_and_the_rest_stays(file):
    taken = []
    reloading = Reloading(load_settings(), taken.append)
    file.write_text('signals_per_source_per_second = 7.0\npartitions = 8\nlog_level = "error"\n')
    reloading.reload()
    assert [one.signals_per_source_per_second for one in taken] == [7.0]
    assert (taken[0].partitions, reloading.settings.partitions) == (64, 64)
    assert logging.getLogger().level == logging.ERROR
    # What stands is what the next change is measured by.
    file.write_text("partitions = 8\n")
    reloading.reload()
    assert taken[1].signals_per_source_per_second == load_settings().signals_per_source_per_second


@pytest.mark.parametrize("text", ["no TOML", "log_level = 'loud'", "nobody_knows_this = 1"])
def test_a_file_that_is_wrong_changes_nothing(file, text):
    taken = []
    reloading = Reloading(load_settings(), taken.append)
    file.write_text(f"signals_per_source_per_second = 7.0\n{text}\n")
    reloading.reload()
    assert taken == []
    assert reloading.settings.signals_per_source_per_second != 7.0


@pytest.mark.parametrize("is_named", [True, False])
def test_a_file_that_is_gone_changes_nothing(file, monkeypatch, is_named):
    """Without it keys would be forgotten, and sources that have one open to anybody."""
    monkeypatch.chdir(file.parent)
    if not is_named:
        monkeypatch.delenv(FILE_VARIABLE)
    file.write_text('signal_sources = ["cms"]\nsignal_source_keys = {cms = "secret"}\n')
    taken = []
    reloading = Reloading(load_settings(), taken.append)
    file.rename(file.with_name("elsewhere.toml"))
    reloading.reload()
    assert taken == []
    file.with_name("elsewhere.toml").rename(file)
    reloading.reload()
    assert [settings.signal_sources for settings in taken] == [("cms",)]


def test_what_a_worker_refuses_is_not_taken_for_what_holds(file):
    def refuse(_settings):
        raise SettingsError("each source needs a token of its own")

    reloading = Reloading(load_settings(), refuse)
    file.write_text("signals_per_source_per_second = 7.0\n")
    reloading.reload()
    assert reloading.settings.signals_per_source_per_second != 7.0


def test_a_new_limit_of_sources_holds_and_repetitions_stay_known():
    settings = Settings(signals_per_source_per_second=1.0)
    handler = SignalHandler(settings, ManualClock(0.0), None)
    debouncer = handler._sifter._debouncer
    handler.take_settings(settings.model_copy(update={"signals_per_source_per_second": 0.1}))
    verdicts = [handler._sifter._limiter.take("cms", 0.0) for _ in range(2)]
    assert verdicts == [Verdict.PASS, Verdict.REPORT_SOURCE]
    assert handler._sifter._debouncer is debouncer


def test_tokens_of_the_receiver_are_replaced_all_or_none():
    settings = Settings(receiver_tokens={"cms": SecretStr("one")})
    receiver = Receiver(settings)
    with pytest.raises(SettingsError):
        receiver.take_settings(
            settings.model_copy(update={"receiver_tokens": {"indexnow": SecretStr("two")}})
        )
    assert receiver._tokens.source_of("Bearer one") == "cms"
    receiver.take_settings(
        settings.model_copy(update={"receiver_tokens": {"cms": SecretStr("two")}})
    )
    assert receiver._tokens.source_of("Bearer two") == "cms"
    with pytest.raises(Refused):
        receiver._tokens.source_of("Bearer one")


def test_a_limit_of_senders_that_falls_leaves_no_burst_of_before():
    rates = Rates(100.0)
    assert rates.wait_for("host", 1, 0.0) == 0.0
    rates.limit(1.0)
    assert rates.wait_for("host", 10, 0.0) == 0.0
    assert rates.wait_for("host", 1, 0.0) > 0.0


def test_tokens_have_no_holders_of_before():
    tokens = Tokens({"cms": SecretStr("one"), "shop": SecretStr("two")})
    tokens.replace({"shop": SecretStr("two")})
    assert tokens.source_of("Bearer two") == "shop"
    with pytest.raises(Refused):
        tokens.source_of("Bearer one")
