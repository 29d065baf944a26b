"""What can be set, and how Kafka's clients are made from it."""

import os
from dataclasses import dataclass, field
from typing import Any, Final

from aiokafka.helpers import create_ssl_context
from scrapy.settings import BaseSettings

DEFAULTS: Final[dict[str, Any]] = {
    "FRESHET_GROUP": "crawlers",
    "FRESHET_MAX_IN_FLIGHT": 0,
    "FRESHET_FOLLOW": False,
    "FRESHET_LINKS": False,
    "FRESHET_RETRY": False,
    "FRESHET_CRAWL_DELAYS": True,
    "FRESHET_REDIRECTED": False,
    "FRESHET_PRIVATE_ADDRESSES": False,
    "FRESHET_ROBOTS_SECONDS": 86_400.0,
    "FRESHET_STOP_SECONDS": 10.0,
}
"""Scrapy's settings that this package adds; its README says what each means."""

LEAST_IN_FLIGHT: Final = 64

_SHARED: Final = {
    "KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9092",
    "FRESHET_TOPIC_PREFIX": "",
    "FRESHET_KAFKA_SECURITY_PROTOCOL": "PLAINTEXT",
    "FRESHET_KAFKA_SASL_MECHANISM": "PLAIN",
    "FRESHET_KAFKA_SASL_USERNAME": "",
    "FRESHET_KAFKA_SASL_PASSWORD": "",
    "FRESHET_KAFKA_SSL_CAFILE": "",
    "FRESHET_KAFKA_SSL_CERTFILE": "",
    "FRESHET_KAFKA_SSL_KEYFILE": "",
}
"""What Freshet's workers are told by the environment, under the same names."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a crawler takes part."""

    topic_prefix: str
    group: str
    """Of consumers: its members share the requests."""
    max_in_flight: int
    """Requests that are on their way and not yet answered."""
    at_once: int
    """So many of them are downloaded at once, at most; those of one host: see `of_host`."""
    of_host: int
    follow: bool
    links: bool
    retry: bool
    crawl_delays: bool
    redirected: bool
    private_addresses: bool
    stop_seconds: float
    kafka: dict[str, Any] = field(repr=False)
    """Options of aiokafka's clients: where, and how to come in."""


def options_of(settings: BaseSettings) -> Options:
    """The options that a crawler's settings, and after them the environment, name.

    Raises:
        ValueError: SASL without a name and password.
    """

    def plain(name: str) -> Any:
        return settings.get(name, DEFAULTS[name])

    shared = {name: _shared(settings, name) for name in _SHARED}
    concurrent = settings.getint("CONCURRENT_REQUESTS")  # 0: any number
    in_flight = int(plain("FRESHET_MAX_IN_FLIGHT")) or max(LEAST_IN_FLIGHT, 4 * concurrent)
    prefix = shared["FRESHET_TOPIC_PREFIX"]
    return Options(
        topic_prefix=prefix,
        group=prefix + str(plain("FRESHET_GROUP")),
        max_in_flight=in_flight,
        at_once=min(concurrent or in_flight, in_flight),
        of_host=max(settings.getint("CONCURRENT_REQUESTS_PER_DOMAIN"), 1),
        follow=settings.getbool("FRESHET_FOLLOW", DEFAULTS["FRESHET_FOLLOW"]),
        links=settings.getbool("FRESHET_LINKS", DEFAULTS["FRESHET_LINKS"]),
        retry=settings.getbool("FRESHET_RETRY", DEFAULTS["FRESHET_RETRY"]),
        crawl_delays=settings.getbool("FRESHET_CRAWL_DELAYS", DEFAULTS["FRESHET_CRAWL_DELAYS"]),
        redirected=settings.getbool("FRESHET_REDIRECTED", DEFAULTS["FRESHET_REDIRECTED"]),
        private_addresses=may_be_private(settings),
        stop_seconds=float(plain("FRESHET_STOP_SECONDS")),
        kafka=_kafka_options(shared),
    )


def may_be_private(settings: BaseSettings) -> bool:
    """Whether addresses that are not on the public internet may be crawled."""
    name = "FRESHET_PRIVATE_ADDRESSES"
    return settings.getbool(name, DEFAULTS[name])


def _shared(settings: BaseSettings, name: str) -> str:
    value = settings.get(name)
    return str(value) if value is not None else os.environ.get(name, _SHARED[name])


def _kafka_options(shared: dict[str, str]) -> dict[str, Any]:
    named = {name.removeprefix("FRESHET_KAFKA_").lower(): value for name, value in shared.items()}
    protocol = named["security_protocol"]
    options: dict[str, Any] = {
        "bootstrap_servers": shared["KAFKA_BOOTSTRAP_SERVERS"],
        "security_protocol": protocol,
    }
    if protocol.startswith("SASL"):
        if not (named["sasl_username"] and named["sasl_password"]):
            raise ValueError(
                f"{protocol} wants a name and a password: set FRESHET_KAFKA_SASL_USERNAME and "
                "FRESHET_KAFKA_SASL_PASSWORD"
            )
        options |= {
            "sasl_mechanism": named["sasl_mechanism"],
            "sasl_plain_username": named["sasl_username"],
            "sasl_plain_password": named["sasl_password"],
        }
    if protocol.endswith("SSL"):
        options["ssl_context"] = create_ssl_context(
            cafile=named["ssl_cafile"] or None,
            certfile=named["ssl_certfile"] or None,
            keyfile=named["ssl_keyfile"] or None,
        )
    return options
