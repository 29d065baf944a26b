"""Looks up what the page asks for; a process of its own, which ends itself when one takes too long.

It has connections of its own, each for one answer. What it answers is what the commands do.
"""

import math
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import psycopg

from services.coordinator.views.questions import ANSWER_SECONDS, Answer, Question
from shared.contracts.identity import BadHost, BadUrl
from shared.runtime.databases import for_views
from shared.runtime.helper_process import answer_all
from shared.runtime.settings import Settings, load_settings
from shared.store.connection import VIEWING
from shared.store.deployment import StoreMismatch
from shared.views.answers import (
    NotKnown,
    calibration_answer,
    host_answer,
    hosts_answer,
    page_answer,
    senders_answer,
    sources_answer,
    streams_answer,
)
from shared.views.explaining import explain
from shared.views.page_value import value_curve

IDLE_SECONDS: Final = 600
"""Nobody has looked for so long: its memory is given back."""

MEMORY_BYTES: Final = 4 * 1024**3
"""Address space, of which most is the compiler's and never touched."""

MOST_HOSTS: Final = 500
MOST_SOURCES: Final = 200
MOST_SENDERS: Final = 100
HOSTS_OF_SENDERS: Final = 20_000
"""Senders are those that so many hosts know."""

MOST_CRAWLS: Final = 50_000
HOSTS_OF_CALIBRATION: Final = 10
LEARNED_SECONDS: Final = 3.0
"""What is learned of sites is read for so long, and what is of streams; those that come later go
without."""

MOST_DAYS: Final = 3650.0
_NICE: Final = 10


class BadQuestion(ValueError):
    """It cannot be answered; the text says why."""


def page_view(settings: Settings, about: str) -> Any:
    """All that `freshet explain` says, and the curve of the value."""
    return page_answer(settings, about, VIEWING)


def host_view(settings: Settings, about: str) -> Any:
    """What binds one host."""
    return {"now": settings.clock().now(), "hosts": [host_answer(settings, about, VIEWING)]}


def hosts_view(settings: Settings, _about: str) -> Any:
    """What binds hosts: those that a rule of their own does, by name."""
    hosts, away = hosts_answer(settings, MOST_HOSTS + 1, VIEWING)
    return {
        "now": settings.clock().now(),
        "hosts": hosts[:MOST_HOSTS],
        "is_whole": len(hosts) <= MOST_HOSTS,
        # Where a database is, and as whom it is asked, is not for everybody.
        "shards_away": [database.held for database in away],
    }


def sources_view(settings: Settings, _about: str) -> Any:
    """What sitemaps, feeds and streams cost and bring, and who else sends signals."""
    sources = sources_answer(settings, MOST_SOURCES + 1, LEARNED_SECONDS, VIEWING)
    return {
        "sources": sources[:MOST_SOURCES],
        "is_whole": len(sources) <= MOST_SOURCES,
        "streams": streams_answer(settings, LEARNED_SECONDS, VIEWING),
        "senders": senders_answer(
            settings, HOSTS_OF_SENDERS, MOST_SENDERS, LEARNED_SECONDS, VIEWING
        ),
    }


def calibration_view(settings: Settings, about: str) -> Any:
    """All figures of `freshet calibration`, of somewhat fewer crawls."""
    try:
        days = float(about or "7")
    except ValueError:
        days = math.nan
    if not 0.0 < days <= MOST_DAYS:
        raise BadQuestion(f"days: a number above 0, at most {MOST_DAYS:g}")
    answer = calibration_answer(settings, days, MOST_CRAWLS, HOSTS_OF_CALIBRATION, VIEWING)
    return answer | {"now": settings.clock().now()}


VIEWS: Final[Mapping[str, Callable[[Settings, str], Any]]] = {
    "page": page_view,
    "host": host_view,
    "hosts": hosts_view,
    "sources": sources_view,
    "calibration": calibration_view,
}


def answered(settings: Settings, question: Question) -> Answer:
    """The answer to a question, or why there is none."""
    try:
        found = VIEWS[question.view](settings, question.about)
    except (BadUrl, BadHost, BadQuestion) as error:
        return _refusal(400, str(error))
    except NotKnown as error:
        return _refusal(404, str(error))
    except StoreMismatch as error:
        return _refusal(503, str(error))
    except psycopg.Error as error:
        return _refusal(503, _in_words(error), str(error).strip())
    except Exception as error:
        # Else the process would end, and the page would say that it takes long.
        return _refusal(500, "this is a fault of Freshet's, and is in its log", repr(error))
    return Answer(200, msgspec.json.encode(found))


def _refusal(status: int, text: str, trouble: str = "") -> Answer:
    return Answer(status, msgspec.json.encode({"error": text}), trouble)


def _in_words(error: psycopg.Error) -> str:
    """What a person can do; where the database is, and as whom it is asked, is for the log."""
    if isinstance(error, psycopg.errors.QueryCanceled | psycopg.errors.LockNotAvailable):
        return "the database takes too long: it is busy, or there is too much to look at"
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return (
            "the coordinator's user may not read this: set FRESHET_VIEW_DATABASE_URL to a user who "
            "has the role freshet_readonly"
        )
    if isinstance(error, psycopg.errors.UndefinedTable | psycopg.errors.UndefinedColumn):
        return "the database is of another version: run `freshet migrate`"
    return "the database does not answer; the log says why"


def _warm_up() -> None:
    """Have compiled, before the first answer's time runs, what compiles."""
    rates = ("unsignalled_change_rate", "signal_evidence", "signal_rate")
    known = {
        "status": "active",
        "state": {
            "importance": 1.0,
            "class_weight": 1.0,
            "last_crawled_at": 0.0,
            "signals": 0,
            "max_age_days": None,
            "unanswered": 1,
            "unanswered_since": 0.5,
        },
        "parameters": dict.fromkeys(rates, 0.1),
        "host": {},
    }
    value_curve(known, explain(known, None, 1.0, 1.0)["decision"], 1.0)


def main() -> None:
    """Answer until nobody asks any more."""
    os.nice(_NICE)
    settings = for_views(load_settings())
    _warm_up()

    def answer(question: bytes) -> bytes:
        asked = msgspec.msgpack.decode(question, type=Question)
        return msgspec.msgpack.encode(answered(settings, asked))

    answer_all(answer, ANSWER_SECONDS, MEMORY_BYTES, IDLE_SECONDS)


if __name__ == "__main__":
    main()
