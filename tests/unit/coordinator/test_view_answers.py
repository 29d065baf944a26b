"""What the process that looks things up makes of the database's troubles."""

import json

import psycopg
import pytest

from services.coordinator.views import answering
from services.coordinator.views.questions import Question
from shared.runtime.settings import Settings
from shared.store.deployment import UNMIGRATED, StoreMismatch


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (psycopg.errors.QueryCanceled("canceling statement"), "takes too long"),
        (psycopg.errors.LockNotAvailable("canceling statement"), "takes too long"),
        (psycopg.errors.InsufficientPrivilege("denied"), "FRESHET_VIEW_DATABASE_URL"),
        (psycopg.errors.UndefinedTable("pages"), "freshet migrate"),
        (psycopg.OperationalError("10.0.0.7: password of crawl_owner"), "does not answer"),
    ],
)
def test_trouble_is_told_in_words_and_its_details_to_the_log_alone(monkeypatch, error, words):
    def fail(_settings, _about):
        raise error

    monkeypatch.setattr(answering, "VIEWS", {"hosts": fail})
    answer = answering.answered(Settings(), Question("hosts"))
    assert answer.status == 503
    assert words in json.loads(answer.body)["error"]
    assert str(error) not in answer.body.decode()
    assert answer.trouble == str(error)


@pytest.mark.parametrize(
    ("error", "status", "words", "trouble"),
    [
        (StoreMismatch(UNMIGRATED), 503, UNMIGRATED, ""),
        (KeyError("10.0.0.7"), 500, "a fault of Freshet's", "KeyError('10.0.0.7')"),
    ],
)
def test_no_fault_ends_the_process_that_looks_things_up(monkeypatch, error, status, words, trouble):
    def fail(_settings, _about):
        raise error

    monkeypatch.setattr(answering, "VIEWS", {"hosts": fail})
    answer = answering.answered(Settings(), Question("hosts"))
    assert (answer.status, answer.trouble) == (status, trouble)
    assert words in json.loads(answer.body)["error"]
    assert "10.0.0.7" not in answer.body.decode()


@pytest.mark.parametrize("days", ["x", "0", "-3", "nan", "inf", "1e9"])
def test_days_that_are_none_are_refused_before_anything_is_asked(days):
    answer = answering.answered(Settings(), Question("calibration", days))
    assert answer.status == 400
