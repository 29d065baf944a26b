"""Why a broker that is there does not let this client in.

aiokafka's clients say of every fault that they could not connect. That a password is wrong, or a
certificate unknown, no waiting will change: it is said at once, with the setting to look at.
"""

import asyncio
import ssl

from aiokafka.conn import create_conn
from aiokafka.errors import (
    AuthenticationFailedError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from aiokafka.protocol.metadata import MetadataRequest

from shared.runtime.settings import Settings

_CERTAIN = (
    ssl.SSLCertVerificationError,
    UnsupportedSaslMechanismError,
    SaslAuthenticationFailed,
    AuthenticationFailedError,
)

CHECK_SECONDS = 5.0
"""For each broker."""


class AccessRefused(Exception):
    """A broker does not let us in; the text names the setting to look at."""

    def __init__(self, message: str, *, certain: bool) -> None:
        """Say why.

        Args:
            message: for people.
            certain: whether waiting cannot help; a broker that hangs up may just be starting.
        """
        super().__init__(message)
        self.certain = certain


async def check_access(settings: Settings, options: dict[str, object]) -> None:
    """Try to come in at the brokers, one after the other, until one lets us.

    A broker that is away is no reason to complain here.

    Args:
        settings: where the brokers are.
        options: of aiokafka's clients, which the settings make.

    Raises:
        AccessRefused: one is there and refuses, and none lets us in.
    """
    reasons: list[str] = []
    certain = False
    for server in settings.kafka_bootstrap_servers.split(","):
        try:
            await _come_in(server.strip(), options)
        except (OSError, ValueError, KafkaError, TimeoutError) as error:
            reason = _reason(error, settings)
            if reason is not None:
                reasons.append(f"the broker at {server.strip()} {reason}")
                certain |= isinstance(error, _CERTAIN)
        else:
            return
    if reasons:
        raise AccessRefused("; ".join(reasons), certain=certain)


async def _come_in(server: str, options: dict[str, object]) -> None:
    host, _, port = server.rpartition(":")
    options = {name: value for name, value in options.items() if name != "bootstrap_servers"}
    async with asyncio.timeout(CHECK_SECONDS):
        connection = await create_conn(
            host.strip("[]"),
            int(port),
            **options,
            request_timeout_ms=int(CHECK_SECONDS * 1000),
        )
        try:
            await connection.send(MetadataRequest([]))
        finally:
            connection.close()


def _reason(error: Exception, settings: Settings) -> str | None:
    protocol = settings.kafka_security_protocol
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"shows a certificate that is not trusted ({error.verify_message}): set "
            "FRESHET_KAFKA_SSL_CAFILE to the authority that signed it, and "
            "KAFKA_BOOTSTRAP_SERVERS to a name that it is for"
        )
    if isinstance(error, ssl.SSLError):
        return (
            f"does not agree on TLS ({error.reason or error}): see FRESHET_KAFKA_SECURITY_PROTOCOL "
            f"({protocol}), and FRESHET_KAFKA_SSL_CERTFILE and _KEYFILE if it wants a certificate"
        )
    if isinstance(error, UnsupportedSaslMechanismError):
        return (
            f"does not take {settings.kafka_sasl_mechanism}: set FRESHET_KAFKA_SASL_MECHANISM to "
            "one that it does"
        )
    if isinstance(error, SaslAuthenticationFailed | AuthenticationFailedError):
        return (
            f"does not take the password of user {settings.kafka_sasl_username!r}: see "
            "FRESHET_KAFKA_SASL_USERNAME, FRESHET_KAFKA_SASL_PASSWORD and "
            f"FRESHET_KAFKA_SASL_MECHANISM ({settings.kafka_sasl_mechanism})"
        )
    if isinstance(error, KafkaConnectionError | ConnectionResetError):
        return (
            f"hangs up on {protocol}: see FRESHET_KAFKA_SECURITY_PROTOCOL; it may want TLS or a "
            "password, or none, or a certificate of ours (FRESHET_KAFKA_SSL_CERTFILE)"
        )
    return None
