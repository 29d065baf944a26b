"""A good message of every topic of a running system, and what makes it a bad one."""

from typing import Any, Final

from services.verify.bad_messages import (
    Injection,
    Template,
    template_for_host,
    unreadable,
    wrong_fields,
    wrong_times,
)
from services.verify.records import last_message
from shared.contracts.identity import identify
from shared.contracts.topics import (
    BANDWIDTH,
    CRAWL_OUTCOMES,
    CRAWL_REQUESTS,
    DEMAND_CURVES,
    GLOBAL_KEY,
    HOST_LIMITS,
    HOST_PARAMETERS,
    MULTIPLIERS,
    PAGE_PARAMETERS,
    PAGE_SIGNALS,
    PAGE_UPDATES,
    SIGNALS,
    Topic,
)
from shared.runtime.settings import Settings

UNKNOWN_URL: Final = "https://h0.example/nobody-knows"
NEW_URL: Final = "https://h1.example/new"
QUIET_HOST: Final = "quiet.example"
"""A host without pages."""

_EVIDENCE: Final = [0.5, 0.5, 0.5, 0.5]

Templates = dict[str, Template]
"""By the topic's name."""


async def templates(settings: Settings, now: float) -> Templates:
    """A good message of every topic; of topics that the system writes, one that it wrote."""
    shards, host = settings.partitions, identify(UNKNOWN_URL).host
    made = _about_nobody(settings, now)
    for topic in (CRAWL_REQUESTS, CRAWL_OUTCOMES):
        message = await last_message(settings, topic)
        if message is not None:
            made.append(template_for_host(topic, message["url"], shards, **message))
    for topic in (BANDWIDTH, DEMAND_CURVES, MULTIPLIERS):
        message = await last_message(settings, topic)
        if message is not None:
            made.append(Template(topic, message, GLOBAL_KEY, 0))
    made.append(
        template_for_host(
            *(HOST_PARAMETERS, UNKNOWN_URL, shards),
            host=host,
            unsignalled_change_rate=0.1,
            signal_evidence=0.5,
            sources=["test"],
            source_evidence=_EVIDENCE,
            burst_multipliers=[1.0] * 6,
            updated_at=now,
        )
    )
    return {good.topic.name: good for good in made}


def _about_nobody(settings: Settings, now: float) -> list[Template]:
    """Messages about a page and hosts that are not there."""
    shards, page = settings.partitions, identify(UNKNOWN_URL)
    unknown: dict[str, Any] = {"url": page.url, "host": page.host}
    return [
        Template(SIGNALS, {"url": page.url, "source": "test", "observed_at": now}, None, 0),
        template_for_host(
            *(PAGE_SIGNALS, UNKNOWN_URL, shards),
            **unknown,
            page_id=page.page_id,
            source="test",
            observed_at=now,
        ),
        template_for_host(
            *(PAGE_UPDATES, NEW_URL, shards), op="upsert", url=NEW_URL, importance=3, updated_at=now
        ),
        template_for_host(
            *(PAGE_PARAMETERS, UNKNOWN_URL, shards),
            host=page.host,
            page_id=page.page_id,
            unsignalled_change_rate=0.1,
            signal_evidence=1.0,
            signal_rate=0.1,
            updated_at=now,
        ),
        template_for_host(
            *(HOST_LIMITS, f"https://{QUIET_HOST}/", shards),
            host=QUIET_HOST,
            max_crawls_per_second=2.0,
        ),
    ]


def spoilt(good: Templates) -> list[Injection]:
    """What is not well formed."""
    return [bad for one in good.values() for bad in (*unreadable(one), *wrong_fields(one))]


def misplaced(good: Templates, shards: int) -> list[Injection]:
    """Records on another shard than their host's."""

    def elsewhere(topic: Topic) -> dict[str, int]:
        return {"partition": (good[topic.name].partition + 1) % shards}

    found = [
        good[topic.name].bad("wrong partition", good[topic.name].changed(), **elsewhere(topic))
        for topic in (PAGE_SIGNALS, CRAWL_OUTCOMES, HOST_LIMITS)
        if topic.name in good
    ]
    rule = "a shard knows its own pages only"
    parameters = good[PAGE_PARAMETERS.name]
    return [
        *found,
        parameters.harmless("elsewhere", rule, parameters.changed(), **elsewhere(PAGE_PARAMETERS)),
    ]


def refused_by_meaning(good: Templates, shards: int) -> list[Injection]:
    """What is well formed, but cannot be."""
    signal, outcome, update = good[SIGNALS.name], good[CRAWL_OUTCOMES.name], good[PAGE_UPDATES.name]
    demand, unknown_shard = good[DEMAND_CURVES.name], {"shard": 30_000}
    unknown = template_for_host(
        *(CRAWL_OUTCOMES, UNKNOWN_URL, shards),
        **(outcome.message | {"url": UNKNOWN_URL, "host": "h0.example", "request_id": None}),
    )
    return [
        wrong_times(signal, "observed_at"),
        signal.bad("very old", signal.changed(observed_at=1)),
        signal.bad("private host", signal.changed(url="http://10.0.0.1/")),
        unknown.bad("unknown page", unknown.changed()),
        demand.bad("unknown shard", demand.changed(**unknown_shard)),
        demand.bad("lists that do not match", demand.changed(ripe=[1.0])),
        demand.bad(
            "thresholds that fall", demand.changed(thresholds=demand.message["thresholds"][::-1])
        ),
        demand.bad("NaN in a list", demand.changed(demand=[float("nan")] * 3)),
        good[MULTIPLIERS.name].bad(
            "a share above 1", good[MULTIPLIERS.name].changed(allotments=[{"shard": 0, "share": 7}])
        ),
        update.bad("unknown operation", update.changed(op="destroy")),
    ]
