"""The web servers of all workers: reading only, on loopback, and no request makes them fail."""

import asyncio
import contextlib
import urllib.parse

import pytest
from aiohttp import web
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from deploy.local.process import free_port
from services.coordinator.picture import add_picture
from services.coordinator.views.questions import Answer
from services.coordinator.views.serving import add_views
from services.coordinator.worker import Coordinator
from services.ingester.worker import Ingester
from services.scheduler.flow.loading import shard_rules
from services.scheduler.picking.calendar import make_shard
from services.scheduler.worker import Scheduler, add_pages
from shared.contracts.identity import identify, shard_of
from shared.contracts.layout import Layout
from shared.contracts.messages import PageUpdate
from shared.runtime.settings import Settings
from shared.runtime.worker import make_app

SHARDS = 4
KNOWN = "https://known.example/a"
PAGES = {
    "ingester": ["/healthz", "/metrics"],
    "scheduler": ["/healthz", "/metrics", "/shards", f"/pages?url={KNOWN}"],
    "coordinator": [
        *("/healthz", "/metrics", "/state.json", "/"),
        *("/page", "/hosts", "/sources", "/calibration", "/common.js"),
        *(f"/page.json?url={KNOWN}", "/hosts.json", "/hosts.json?host=a.example"),
        *("/sources.json", "/calibration.json?days=7"),
    ],
}
METHODS = ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "X" * 50]
TRAVERSALS = [
    "/../../../../etc/passwd",
    "/..%2f..%2fetc/passwd",
    "/%2e%2e/%2e%2e/etc/passwd",
    "/style.css/../../worker.py",
    "//etc/passwd",
    "/router/",
    "/table/",
    "/graph/",
    "/performance/",
]


def make(name: str, **more):
    """A worker's app with its pages, as its process makes it."""
    settings = Settings(partitions=SHARDS, **more)
    if name == "coordinator":
        coordinator = Coordinator(settings)
        app = make_app(name, coordinator)
        add_picture(app, coordinator.state)
        add_views(app, looked_up)
        return app
    if name == "ingester":
        return make_app(name, Ingester(settings))
    scheduler = Scheduler(settings)
    page = identify(KNOWN)
    for number in range(SHARDS):
        shard = make_shard(number, shard_rules(settings, scheduler.clock))
        shard.layout = Layout.of(SHARDS)
        scheduler._handler.shards[number] = shard
    shard = scheduler._handler.shards[shard_of(page.host, SHARDS)]
    shard.upsert(page, PageUpdate("upsert", KNOWN), 1e9)
    app = make_app(name, scheduler)
    add_pages(app, scheduler)
    return app


async def looked_up(question):
    """As if a database had answered."""
    return Answer(200, b"{}" if question.about.isprintable() else b"no")


class Server:
    """A worker's web server on a loop of the test's own, without the worker's loops."""

    def __init__(self, name: str, **more) -> None:
        self.loop = asyncio.new_event_loop()
        self.port = free_port()
        self.app = None
        self.run(self._start(name, **more))

    def run(self, coroutine):
        return self.loop.run_until_complete(asyncio.wait_for(coroutine, 30))

    async def _start(self, name, **more):
        self.app = make(name, **more)
        pages = await self.app.web.wsgi()
        self._runner = web.AppRunner(pages, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    def stop(self):
        self.run(self._runner.cleanup())
        self.loop.close()

    def ask(self, raw: bytes, patience: float = 0.3) -> tuple[int, bytes]:
        """The answer to the bytes of a request: status (0: none came in time) and all of it."""
        return self.run(self._ask(raw, patience))

    async def _ask(self, raw, patience):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        answer = b""
        try:
            writer.write(raw)
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(patience):
                    while part := await reader.read(1 << 16):
                        answer += part
        except OSError:
            pass
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        status = answer.split(b" ", 2)[1] if answer.startswith(b"HTTP/1") else b"0"
        return int(status), answer

    def get(self, path: str, method: str = "GET", body: bytes = b"") -> tuple[int, bytes]:
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        if body:
            head += f"Content-Length: {len(body)}\r\n"
        return self.ask(head.encode("utf-8", "surrogatepass") + b"\r\n" + body, 20.0)


@pytest.fixture(scope="module", params=list(PAGES))
def server(request):
    made = Server(request.param)
    made.name = request.param
    yield made
    made.stop()


def test_pages_are_there_and_carry_the_headers(server):
    for path in PAGES[server.name]:
        status, answer = server.get(path)
        assert status == 200, (path, answer[:300])
        assert b"nosniff" in answer


def test_nothing_but_reading_is_answered(server):
    for path in PAGES[server.name]:
        for method in METHODS:
            status, answer = server.get(path, method, b"x=1")
            assert status in (400, 404, 405), (method, path, answer[:200])


def test_there_are_no_other_files_and_none_of_faust_s_pages(server):
    for path in TRAVERSALS:
        status, answer = server.get(path)
        assert status in (400, 404), (path, answer[:200])
        assert b"root:" not in answer
        assert b"import " not in answer


def test_absurd_requests_are_refused(server):
    for raw in (
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 100_000 + b"\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\n",
    ):
        status, _ = server.ask(raw)
        assert status in (0, 200, 400, 404, 414, 431), raw[:60]
    assert server.get("/healthz")[0] == 200


def test_they_listen_on_loopback_unless_told_otherwise(server):
    assert server.app.conf.web_bind == "127.0.0.1"
    assert server.app.conf.web_host == "127.0.0.1"
    assert server.app.conf.web_in_thread is False


def test_a_stranger_s_page_may_not_make_the_coordinator_look_things_up():
    server = Server("coordinator")
    head = "GET /hosts.json HTTP/1.1\r\nHost: x\r\nConnection: close\r\nSec-Fetch-Site: "
    for site, status in (("cross-site", 403), ("same-origin", 200), ("none", 200)):
        assert server.ask(f"{head}{site}\r\n\r\n".encode(), 20.0)[0] == status
    server.stop()


OWN_NAMES = ["localhost:{}", "LOCALHOST.:{}", "a.localhost:{}", "127.0.0.1:{}", "[::1]:{}"]
OWN_NAMES += ["192.0.2.1:{}", "127.0.0.1"]
PROXIED = ["freshet.example", "freshet"]
"""By a proxy on port 80 or 443, which passes on what it was asked for."""
STRANGERS = ["evil.example:{}", "evil.example.:1", "127.0.0.1.evil.example:{}", "localhosts:{}"]
STRANGERS += ["a:b:{}"]


def came_by(server, name):
    """The answer to a browser that came by a name."""
    head = f"GET /metrics HTTP/1.1\r\nHost: {name.format(server.port)}\r\nConnection: close\r\n\r\n"
    return server.ask(head.encode(), 20.0)


def test_a_name_that_a_stranger_lets_lead_to_loopback_is_refused():
    server = Server("ingester")
    for name in (*OWN_NAMES, *PROXIED):
        assert came_by(server, name)[0] == 200, name
    assert server.ask(b"GET /healthz HTTP/1.0\r\n\r\n", 20.0)[0] == 200
    for name in STRANGERS:
        status, answer = came_by(server, name)
        assert status == 421, name
        assert b"open it as localhost" in answer
        assert b"freshet_" not in answer
    server.stop()


def test_on_port_80_every_name_is_without_a_port():
    server = Server("ingester", http_port=80)
    assert [came_by(server, name)[0] for name in ("localhost", "evil.example")] == [200, 421]
    server.stop()


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "coordinator.internal"])
def test_who_listens_elsewhere_goes_by_any_name(address):
    server = Server("ingester", http_host=address)
    assert came_by(server, "coordinator.freshet.svc:{}")[0] == 200
    server.stop()


FUZZ = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}
PATHS = st.one_of(
    st.sampled_from([path for paths in PAGES.values() for path in paths]),
    st.text(st.characters(exclude_characters=" \r\n"), max_size=40).map(lambda t: "/" + t),
    st.from_regex(r"/[a-z./%0-9?=&;#\\]{0,60}", fullmatch=True),
)


@hypothesis_settings(max_examples=120, **FUZZ)
@given(path=PATHS, method=st.sampled_from(["GET", "HEAD", *METHODS]))
def test_no_path_makes_a_server_fail(server, path, method):
    status, answer = server.get(path, method)
    assert status < 500 or path == "/readyz", answer[:300]
    if method not in ("GET", "HEAD"):
        assert status != 200


@hypothesis_settings(max_examples=40, **FUZZ)
@given(raw=st.binary(max_size=200) | st.binary(max_size=100).map(lambda b: b"GET /" + b))
def test_no_bytes_make_a_server_fail(server, raw):
    status, answer = server.ask(raw + b"\r\n\r\n")
    assert status < 500, answer[:300]


@pytest.fixture(scope="module")
def scheduler():
    made = Server("scheduler")
    yield made
    made.stop()


@pytest.mark.slow(0.5)
@hypothesis_settings(max_examples=300, **FUZZ)
@given(
    url=st.one_of(
        st.text(max_size=80),
        st.builds(
            "{}://{}{}".format, st.sampled_from(["http", "https", "ftp"]), st.text(), st.text()
        ),
        st.text(max_size=30).map(lambda t: f"https://known.example/{t}"),
        st.sampled_from([KNOWN, "HTTPS://KNOWN.example:443/a#b", "http://[::1]/", "h" * 5000]),
    )
)
def test_no_url_makes_the_scheduler_fail(scheduler, url):
    quoted = urllib.parse.quote(url, safe="", errors="surrogatepass")
    status, answer = scheduler.get(f"/pages?url={quoted}")
    assert status in (200, 400, 404), answer[:300]


@hypothesis_settings(max_examples=150, **FUZZ)
@given(query=st.text(st.characters(exclude_characters=" \r\n"), max_size=60))
def test_no_query_makes_the_scheduler_fail(scheduler, query):
    status, answer = scheduler.get(f"/pages?{query}")
    assert status in (200, 400, 404), answer[:300]


@pytest.fixture(scope="module")
def coordinator():
    made = Server("coordinator")
    yield made
    made.stop()


@hypothesis_settings(max_examples=150, **FUZZ)
@given(query=st.text(st.characters(exclude_characters=" \r\n"), max_size=60), name=st.text())
def test_no_query_makes_the_coordinator_fail(coordinator, query, name):
    quoted = urllib.parse.quote(name, safe="", errors="surrogatepass")
    for path in (f"/page.json?{query}", f"/page.json?url={quoted}", f"/hosts.json?host={quoted}"):
        status, answer = coordinator.get(path)
        assert status in (200, 400, 404), answer[:300]
        assert b"\r\n\r\nno" not in answer
