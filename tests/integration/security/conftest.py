"""Apache Kafka behind TLS and passwords, a PostgreSQL that wants both, and users of its roles."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from apache import need_apache_kafka
from certificates import Authority

from deploy.local.apache import ApacheKafka, Guard
from shared.store.roles import ROLES

USER, PASSWORD = "freshet", "pass-w0rd-of-tests"


@pytest.fixture(scope="session")
def authority(scratch_dir: Path) -> Authority:
    """Whose certificates the tests' servers have."""
    return Authority(scratch_dir / "authority", "Authority of the tests")


@pytest.fixture(scope="session")
def stranger(scratch_dir: Path) -> Authority:
    """Another authority, which nobody trusts."""
    return Authority(scratch_dir / "stranger", "Stranger")


@pytest.fixture(scope="session")
def broker_certificate(authority: Authority, scratch_dir: Path) -> Path:
    """Private key and certificate of a broker, in one file."""
    certificate, key = authority.issue("broker")
    both = scratch_dir / "broker-both.pem"
    both.write_text(key.read_text() + certificate.read_text())
    return both


@pytest.fixture(scope="session", params=["SASL_SSL", "SASL_PLAINTEXT", "SSL"])
def guard(request, authority: Authority, broker_certificate: Path) -> Guard:
    """Ways of coming in: password and TLS, password alone, certificates on both sides."""
    guards = {
        "SASL_SSL": Guard("SASL_SSL", "SCRAM-SHA-512", {USER: PASSWORD}, broker_certificate),
        "SASL_PLAINTEXT": Guard("SASL_PLAINTEXT", "PLAIN", {USER: PASSWORD}),
        "SSL": Guard("SSL", certificate=broker_certificate, client_authority=authority.certificate),
    }
    return guards[request.param]


@pytest.fixture(scope="session")
def guarded_kafka(guard: Guard, scratch_dir: Path) -> Iterator[ApacheKafka]:
    """Apache Kafka that lets in only whom the guard does."""
    need_apache_kafka()
    broker = ApacheKafka(scratch_dir / f"guarded-{guard.protocol}", guard=guard)
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


@pytest.fixture(scope="session")
def access(guard: Guard, guarded_kafka: ApacheKafka, authority: Authority) -> dict[str, object]:
    """Settings that let a client in."""
    settings: dict[str, object] = {
        "kafka_bootstrap_servers": guarded_kafka.bootstrap_servers,
        "kafka_security_protocol": guard.protocol,
    }
    if guard.users:
        settings |= {
            "kafka_sasl_mechanism": guard.mechanism,
            "kafka_sasl_username": USER,
            "kafka_sasl_password": PASSWORD,
        }
    if guard.certificate is not None:
        settings["kafka_ssl_cafile"] = authority.certificate
    if guard.client_authority is not None:
        certificate, key = authority.issue("client")
        settings |= {"kafka_ssl_certfile": certificate, "kafka_ssl_keyfile": key}
    return settings


@pytest.fixture
def logins(migrated_url: str) -> Iterator[dict[str, str]]:
    """role → address of the database as a user who has that role alone."""
    users = {role: f"{role}_{uuid.uuid4().hex[:8]}" for role in ROLES}
    with psycopg.connect(migrated_url, autocommit=True) as connection:
        for role, user in users.items():
            connection.execute(f"CREATE ROLE {user} LOGIN IN ROLE {role}")
    yield {role: migrated_url.replace("postgres@", f"{user}@", 1) for role, user in users.items()}
    with psycopg.connect(migrated_url, autocommit=True) as connection:
        for user in users.values():
            connection.execute(f"DROP ROLE {user}")
