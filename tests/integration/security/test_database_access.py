"""Every client of the database obeys DATABASE_URL: TLS, the authority, the password."""

import ssl
import urllib.parse
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from certificates import Authority
from click.testing import CliRunner
from page_batches import page_batch
from tls_front import TlsFront
from workers import settings_for, worker

from deploy.local.postgres import EmbeddedPostgres
from migrations.upgrade import migrate
from services.cli.main import main
from shared.store.connection import connect, connect_writer
from shared.store.imports import import_pages
from shared.store.lease import connect_lease, read_lease
from shared.store.snapshot import load_for_learning, load_shard
from shared.store.status import store_status

pytestmark = pytest.mark.postgres

SHARDS = 4
PASSWORD = "pass/w0rd:of@tests"


@pytest.fixture(scope="module")
def front(scratch_dir: Path, authority: Authority) -> Iterator[TlsFront]:
    """A server that wants TLS and a password; its certificate is for `localhost` alone."""
    server = EmbeddedPostgres(scratch_dir / f"tls-{uuid.uuid4().hex[:8]}")
    server.start()
    with psycopg.connect(server.uri, autocommit=True) as connection:
        row = connection.execute("SHOW hba_file").fetchone()
        Path(row[0]).write_text("local all postgres trust\nlocal all all scram-sha-256\n")
        quoted = psycopg.sql.Literal(PASSWORD)
        create = psycopg.sql.SQL("CREATE ROLE freshet LOGIN PASSWORD {}").format(quoted)
        connection.execute(create)
        connection.execute("CREATE DATABASE freshet OWNER freshet")
        connection.execute("SELECT pg_reload_conf()")
        row = connection.execute("SHOW unix_socket_directories").fetchone()
    certificate, key = authority.issue("database", "DNS:localhost")
    made = TlsFront(Path(row[0]) / ".s.PGSQL.5432", certificate, key)
    made.start()
    yield made
    made.stop()
    server.stop()


def address(front: TlsFront, authority: Authority, **change: str) -> str:
    """DATABASE_URL of the server, right unless changed."""
    given = {
        "host": "localhost",
        "password": PASSWORD,
        "sslmode": "verify-full",
        "sslrootcert": str(authority.certificate),
    } | change
    password = urllib.parse.quote(given["password"], safe="")
    options = urllib.parse.urlencode({name: given[name] for name in ("sslmode", "sslrootcert")})
    return f"postgresql://freshet:{password}@{given['host']}:{front.port}/freshet?{options}"


async def test_all_clients_come_in_through_tls(front, authority):
    url = address(front, authority)
    migrate(url, SHARDS)
    urls = [f"https://host-{n}.example/" for n in range(20)]
    assert import_pages(url, SHARDS, [page_batch(urls)], now=1e9).added == 20
    assert sum(load_shard(url, shard).pages.page_ids.size for shard in range(SHARDS)) == 20
    assert sum(load_for_learning(url, shard).pages.page_ids.size for shard in range(SHARDS)) == 20
    for open_ in (connect, connect_writer):
        with open_(url, "test") as connection:
            assert connection.pgconn.ssl_in_use
    lease = await connect_lease(url)
    assert lease.pgconn.ssl_in_use
    assert (await read_lease(lease)).epoch == 0
    await lease.close()
    assert front.in_clear == 0


async def test_a_worker_comes_in_through_tls(front, authority, local_broker, tmp_path):
    url = address(front, authority)
    migrate(url, SHARDS)
    prefix = f"tls-{uuid.uuid4().hex[:8]}"
    settings = settings_for(
        local_broker.bootstrap_servers, prefix, partitions=SHARDS, database_url=url
    )
    with worker("coordinator", settings, tmp_path) as process:
        await process.ready()
        assert process.stop() == 0
    assert PASSWORD not in process.log
    assert urllib.parse.quote(PASSWORD, safe="") not in process.log


def run(url: str, *arguments: str, **more: str | None):
    variables = {"DATABASE_URL": url, "FRESHET_PARTITIONS": str(SHARDS)} | more
    return CliRunner().invoke(main, list(arguments), env=variables)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"password": "wr0ng"}, "password"),
        ({"host": "127.0.0.1"}, "certificate"),
        ({"sslrootcert": "/no/such/file.pem"}, "sslrootcert"),
        ({"sslmode": "disable"}, "sslmode"),
    ],
)
def test_who_may_not_come_in_is_told_what_to_look_at(front, authority, change, named):
    answer = run(address(front, authority, **change), "migrate")
    assert answer.exit_code == 2, answer.output
    assert "DATABASE_URL" in answer.output
    assert named in answer.output
    for secret in (PASSWORD, urllib.parse.quote(PASSWORD, safe=""), "wr0ng"):
        assert secret not in answer.output


def test_a_server_with_a_stranger_s_certificate_is_not_trusted(front, authority, stranger):
    answer = run(address(front, authority, sslrootcert=str(stranger.certificate)), "migrate")
    assert answer.exit_code == 2
    assert "sslrootcert" in answer.output
    assert "DATABASE_URL" in answer.output


@pytest.mark.parametrize("is_named", [True, False], ids=["named", "as Python knows it"])
def test_the_machines_authorities_are_trusted(front, authority, stranger, monkeypatch, is_named):
    url = address(front, authority, sslrootcert="system")

    def machine_trusts(whom: Authority) -> dict[str, str | None]:
        file = str(whom.certificate)
        known = ssl.get_default_verify_paths()._replace(cafile=file, capath=None)
        monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: known)
        return {"SSL_CERT_FILE": file if is_named else None, "SSL_CERT_DIR": None}

    answer = run(url, "migrate", **machine_trusts(authority))
    assert answer.exit_code == 0, answer.output
    answer = run(url, "migrate", **machine_trusts(stranger))
    assert answer.exit_code == 2
    assert "certificate" in answer.output


def test_commands_show_no_password(front, authority):
    url = address(front, authority)
    for arguments in (["migrate", "--json"], ["settings", "--json"], ["status", "--json"]):
        answer = run(url, *arguments)
        assert PASSWORD not in answer.output
        assert urllib.parse.quote(PASSWORD, safe="") not in answer.output
    assert run(url, "migrate").exit_code == 0
    assert store_status(url, 1e9) is not None
