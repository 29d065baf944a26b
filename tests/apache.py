"""Apache Kafka, where it can run."""

import os
from pathlib import Path

import pytest

from deploy.local.java import POM, ApacheKafkaUnavailableError, resolve_jars, why_unavailable

NO_APACHE_KAFKA = "Apache Kafka cannot run here: "
"""Begins the reason of every skip that is due to it."""


def _once(fixture: str) -> pytest.MarkDecorator:
    kinds = ["local", pytest.param("apache", marks=pytest.mark.long)]
    return pytest.mark.parametrize(fixture, kinds, indirect=True)


ONCE = _once("broker")
"""On a test of what a worker makes of messages, which is no matter of the broker's: on the local
one each time, on Apache Kafka with `make long`. The contract tests hold both to the same, and
whole systems are harmed on Apache Kafka."""

OWN_ONCE = _once("own_broker")
"""The same, on a test that stops or kills its broker: Apache Kafka takes four seconds of a core to
start again, and is killed where whole systems are harmed."""


def best_broker() -> str:
    """What whole systems are harmed on: Apache Kafka where it can run, else the local broker.

    Once, as each takes minutes; the contract tests hold both brokers to the same.
    """
    if why_unavailable() is not None:
        return "local"
    need_apache_kafka()
    return "apache"


def need_apache_kafka(pom: Path = POM) -> None:
    """Skip the test where Java or Maven is missing, or the jars; in CI, jars must be there.

    Args:
        pom: names the jars, be they others than Apache Kafka's.
    """
    reason = why_unavailable()
    if reason is not None:
        pytest.skip(f"{NO_APACHE_KAFKA}{reason}")
    try:
        resolve_jars(pom)
    except ApacheKafkaUnavailableError as error:
        if os.environ.get("CI"):
            raise
        first_line, _, _ = str(error).partition("\n")
        pytest.skip(f"{NO_APACHE_KAFKA}{first_line}")
