"""Whether the settings of Kafka's security fit one another."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shared.runtime.settings import Settings


def check_kafka_security(settings: "Settings") -> None:
    """Refuse what would go without TLS, or without a password, though somebody has set one up.

    Raises:
        ValueError: names the settings, and what to do.
    """
    protocol = settings.kafka_security_protocol
    credentials = settings.kafka_sasl_username, settings.kafka_sasl_password
    if protocol.startswith("SASL") and not all(credentials):
        raise ValueError(
            "kafka_security_protocol wants SASL: set kafka_sasl_username and kafka_sasl_password"
        )
    if any(credentials) and not protocol.startswith("SASL"):
        raise ValueError(
            f"kafka_security_protocol is {protocol}, so nobody is told kafka_sasl_username and "
            "kafka_sasl_password: set it to SASL_SSL, or leave them out"
        )
    names = ("kafka_ssl_cafile", "kafka_ssl_certfile", "kafka_ssl_keyfile")
    unused = [name for name in names if getattr(settings, name) is not None]
    if unused and not protocol.endswith("SSL"):
        raise ValueError(
            f"kafka_security_protocol is {protocol}, which has no TLS, so {' and '.join(unused)} "
            "would be of no use: set it to SSL or SASL_SSL, or leave them out"
        )
    if settings.kafka_ssl_keyfile is not None and settings.kafka_ssl_certfile is None:
        raise ValueError(
            "kafka_ssl_keyfile would be of no use without kafka_ssl_certfile, whose key it is: "
            "give both, or leave it out"
        )
