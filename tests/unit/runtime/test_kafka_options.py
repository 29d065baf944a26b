"""Kafka clients: what the settings make of them."""

import ssl

from shared.runtime.kafka import client_options, gathering
from shared.runtime.settings import Settings


def test_plain_clients_carry_the_instance_and_no_secrets():
    options = client_options(Settings(kafka_bootstrap_servers="a:1,b:2", instance="scheduler-3"))
    assert options["bootstrap_servers"] == "a:1,b:2"
    assert options["client_id"] == "freshet-scheduler-3"
    assert options["ssl_context"] is None
    assert "sasl_mechanism" not in options


def test_sasl_over_tls_verifies_the_brokers():
    options = client_options(
        Settings(
            kafka_security_protocol="SASL_SSL",
            kafka_sasl_mechanism="SCRAM-SHA-512",
            kafka_sasl_username="me",
            kafka_sasl_password="secret",
        )
    )
    assert options["sasl_mechanism"] == "SCRAM-SHA-512"
    assert options["sasl_plain_password"] == "secret"
    assert options["ssl_context"].verify_mode == ssl.CERT_REQUIRED
    assert options["ssl_context"].check_hostname


def test_what_is_gathered_is_less_than_what_is_read_ahead():
    assert gathering(0.05, 1 << 16) == {
        "max_partition_fetch_bytes": 1 << 16,
        "fetch_max_wait_ms": 50,
        "fetch_min_bytes": 1 << 15,
    }
    assert gathering(0.0, 1 << 16) == {"max_partition_fetch_bytes": 1 << 16}
