"""Fetching what strangers name: never from a private address, however it is reached."""

import asyncio
import socket
import threading

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver
from aiohttp.test_utils import TestServer
from yarl import URL

from deploy.local.process import free_port
from shared.runtime.fetching import Fetcher, FetchFailed, Unreached


def anywhere(before, after):
    return True


class Names(AbstractResolver):
    """Answers each question about any name with the next of some addresses."""

    def __init__(self, *addresses):
        self.addresses = list(addresses)

    async def resolve(self, host, port=0, family=socket.AF_INET):
        address = self.addresses.pop(0)
        return [
            {
                "hostname": host,
                "host": address,
                "port": port,
                "family": socket.AF_INET6 if ":" in address else socket.AF_INET,
                "proto": 0,
                "flags": socket.AI_NUMERICHOST,
            }
        ]

    async def close(self):
        pass


@pytest.fixture
async def server():
    """A server on loopback that counts who comes."""

    async def answer(request):
        server.visits += 1
        server.asked.append(request.raw_path)
        match request.path:
            case "/to":
                return web.Response(status=302, headers={"Location": server.target})
            case "/round":
                raise web.HTTPFound("/round")
            case "/out":
                raise web.HTTPFound("http://elsewhere.example/")
            case "/odd":
                return web.Response(status=302, headers={"Location": "http://[x"})
            case "/long":
                long = {"Content-Security-Policy": "x" * 20_000}
                return web.Response(text="well", headers=long)
            case "/odder":
                return web.Response(status=302, headers={"Location": "http://xn--a/"})
            case "/never":
                await asyncio.Event().wait()
        return web.Response(text="x" * 5000)

    server = TestServer(web.Application())
    server.app.router.add_get("/{any:.*}", answer)
    await server.start_server()
    server.visits, server.asked, server.target = 0, [], "/"
    yield server
    await server.close()


@pytest.fixture
async def fetcher():
    """A function that makes a fetcher."""
    made = []

    async def make(allow_private=False, names=None, seconds=10.0):
        made.append(Fetcher(allow_private=allow_private, seconds=seconds, resolver=names))
        await made[-1].start()
        return made[-1]

    yield make
    for one in made:
        await one.stop()


async def refused(fetcher, url, **more):
    options = {"max_bytes": 10_000, "may_follow": anywhere} | more
    with pytest.raises(FetchFailed) as failure:
        await fetcher.get(url, **options)
    return str(failure.value)


async def test_a_private_address_is_not_connected_to_by_number_or_by_name(server, fetcher):
    port = server.port
    for url in (
        f"http://127.0.0.1:{port}/",
        f"http://127.1:{port}/",
        f"http://2130706433:{port}/",
        f"http://[::ffff:127.0.0.1]:{port}/",
        f"http://[::1]:{port}/",
        f"http://0.0.0.0:{port}/",
    ):
        assert "not on the public internet" in await refused(await fetcher(), url)
    for address in ("127.0.0.1", "::1", "::ffff:127.0.0.1", "10.1.2.3", "169.254.169.254"):
        one = await fetcher(names=Names(address))
        said = await refused(one, f"http://public.example:{port}/")
        assert "not on the public internet" in said
    assert server.visits == 0


async def test_a_name_that_changes_its_mind_is_judged_by_where_it_leads_now(server, fetcher):
    # The first answer is public and dead; a second look, if there were one, would lead to us.
    names = Names("192.0.2.1", "127.0.0.1")
    one = await fetcher(names=names, seconds=0.3)
    await refused(one, f"http://rebinding.example:{server.port}/")
    assert "not on the public internet" in await refused(
        one, f"http://rebinding.example:{server.port}/"
    )
    assert server.visits == 0


async def test_redirects_are_followed_a_few_times_and_not_into_private_places(server, fetcher):
    one = await fetcher(allow_private=True)
    assert "more than 5 redirects" in await refused(one, str(server.make_url("/round")))
    assert server.visits == 6
    assert "is not followed" in await refused(
        one, str(server.make_url("/out")), may_follow=lambda before, after: False
    )
    for path in ("/odd", "/odder"):
        assert "no URL" in await refused(
            one, str(server.make_url(path)), may_follow=lambda before, after: bool(URL(after).host)
        )


@pytest.mark.parametrize(
    ("target", "asked"),
    [
        # What is signed as it is written is elsewhere if it is written in another way.
        ("/a?sig=a%2Fb%3D%2B&u=https%3A%2F%2Fx.example%2F", None),
        ("/a%2Fb/%7Ec/%40d?e=%2C%7C%3B", None),
        ("/a?b=c+d%20e&f", None),
        ("/100%zz", None),
        ("a;b=1?c='d'", "/a;b=1?c=%27d%27"),
        ("/\u00e4 b#c", "/%C3%A4%20b"),
        ("../a/./b/../c", "/a/c"),
    ],
)
async def test_where_a_redirect_leads_is_asked_for_as_it_is_written(server, fetcher, target, asked):
    one = await fetcher(allow_private=True)
    server.target = target
    await one.get(str(server.make_url("/to")), max_bytes=10_000, may_follow=anywhere)
    assert server.asked == ["/to", asked or target]


async def test_long_headers_as_real_sites_have_them_are_read(server, fetcher):
    one = await fetcher(allow_private=True)
    url = str(server.make_url("/long"))
    assert (await one.get(url, max_bytes=10, may_follow=anywhere)).body == b"well"


async def test_what_is_long_or_slow_is_given_up(server, fetcher):
    one = await fetcher(allow_private=True, seconds=0.3)
    url = str(server.make_url("/"))
    assert "more than 4999 bytes" in await refused(one, url, max_bytes=4999)
    whole = await one.get(url, max_bytes=5000, may_follow=anywhere)
    assert (whole.status, len(whole.body)) == (200, 5000)
    beginning = await one.get(url, max_bytes=100, may_follow=anywhere, cut=True)
    assert len(beginning.body) == 100
    assert "longer than" in await refused(one, str(server.make_url("/never")))


async def test_a_server_that_is_away_is_told_from_one_that_says_what_cannot_be_used(
    server, fetcher
):
    one, never = await fetcher(allow_private=True, seconds=0.3), str(server.make_url("/never"))
    for url in (never, f"http://127.0.0.1:{free_port()}/"):
        with pytest.raises(Unreached):
            await one.get(url, max_bytes=5000, may_follow=anywhere)
    for path in ("/", "/odd"):
        with pytest.raises(FetchFailed) as failure:
            await one.get(str(server.make_url(path)), max_bytes=10, may_follow=anywhere)
        assert not isinstance(failure.value, Unreached)


async def test_a_body_may_be_taken_as_it_comes(server, fetcher):
    one, url = await fetcher(allow_private=True), str(server.make_url("/"))
    parts = []

    async def take(part):
        parts.append(part)

    answer = await one.get(url, max_bytes=5000, may_follow=anywhere, take=take)
    assert (b"".join(parts), answer.body) == (b"x" * 5000, b"")
    assert "more than 4999 bytes" in await refused(one, url, max_bytes=4999, take=take)
    # Of a redirect and its like there is nothing to take.
    parts.clear()
    assert "is not followed" in await refused(
        one, str(server.make_url("/out")), take=take, may_follow=lambda before, after: False
    )
    assert parts == []


@pytest.mark.parametrize("url", ["ftp://a.example/", "http://u:p@a.example/", "//a", "http://"])
async def test_what_is_no_url_of_the_web_is_not_fetched(fetcher, url):
    await refused(await fetcher(), url)


async def test_names_that_nobody_answers_for_keep_nothing_else_waiting(
    server, fetcher, monkeypatch
):
    known, answers = socket.getaddrinfo, threading.Event()

    def look_up(host, *more, **how):
        if host.endswith(".silent.example"):
            answers.wait()
            raise socket.gaierror("nobody answers")
        return known(host, *more, **how)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    strangers = await fetcher(seconds=0.2)
    asked = [
        strangers.get(f"http://{n}.silent.example/", max_bytes=1, may_follow=anywhere)
        for n in range(40)
    ]
    try:
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert {type(one) for one in found} == {Unreached}
        # The threads still wait, though whoever asked has given up.
        async with asyncio.timeout(20):
            assert await asyncio.to_thread(int) == 0
            own = await fetcher(allow_private=True)
            url = f"http://localhost:{server.port}/"
            assert (await own.get(url, max_bytes=10_000, may_follow=anywhere)).status == 200
            with pytest.raises(FetchFailed, match="not on the public internet"):
                await strangers.get(url, max_bytes=10_000, may_follow=anywhere)
    finally:
        answers.set()
