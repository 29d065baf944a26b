"""A form follows its server to another address, as often as is sensible and only in public."""

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from shared.runtime.fetching import Fetcher, FetchFailed

FORM = {"hub.mode": "subscribe", "hub.topic": "https://a.example/ä"}
MOST = 10_000


class Site:
    """Leads from path to path, and remembers what was asked of each."""

    def __init__(self):
        self.leads = {}
        """Path → status, and where it leads to."""
        self.asked = []
        self.url = ""

    async def answer(self, request):
        self.asked.append((request.method, request.path, dict(await request.post())))
        if request.path in self.leads:
            status, target = self.leads[request.path]
            return web.Response(status=status, headers={"Location": target})
        return web.Response(status=202)


@pytest.fixture
async def site():
    made = Site()
    application = web.Application()
    application.router.add_route("*", "/{any:.*}", made.answer)
    async with TestServer(application) as server:
        made.url = str(server.make_url("/")).rstrip("/")
        yield made


@pytest.fixture
async def fetcher():
    made = Fetcher(allow_private=True)
    await made.start()
    yield made
    await made.stop()


def to_the_web(_, target):
    return target.startswith("http")


async def send(fetcher, url, may_follow=to_the_web):
    return await fetcher.post(url, FORM, max_bytes=MOST, may_follow=may_follow)


@pytest.mark.parametrize("status", [307, 308])
async def test_a_form_is_sent_again_where_its_server_says(site, fetcher, status):
    site.leads["/a"] = status, "/b"
    answer = await send(fetcher, f"{site.url}/a")
    assert (answer.status, answer.url) == (202, f"{site.url}/b")
    assert site.asked == [("POST", "/a", FORM), ("POST", "/b", FORM)]


@pytest.mark.parametrize("status", [301, 302, 303])
async def test_a_redirect_that_would_make_another_question_of_it_is_an_answer(
    site, fetcher, status
):
    site.leads["/a"] = status, "/b"
    assert (await send(fetcher, f"{site.url}/a")).status == status
    assert len(site.asked) == 1


async def test_what_has_moved_for_good_is_told_up_to_the_first_that_has_not(site, fetcher):
    url = site.url
    assert (await send(fetcher, f"{url}/d")).moved_to is None
    site.leads = {"/a": (308, "/b"), "/b": (308, "/c"), "/c": (307, "/d"), "/d": (308, "/e")}
    found = {path: (await send(fetcher, f"{url}/{path}")).moved_to for path in "abcd"}
    assert found == {"a": f"{url}/c", "b": f"{url}/c", "c": None, "d": f"{url}/e"}


async def test_a_form_is_led_about_five_times_at_most(site, fetcher):
    site.leads["/round"] = 307, "/round"
    with pytest.raises(FetchFailed, match="more than 5 redirects"):
        await send(fetcher, f"{site.url}/round")
    assert len(site.asked) == 6


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("http://127.0.0.1:1/", "not on the public internet"),
        ("http://[::1]:1/", "not on the public internet"),
        ("ftp://a.example/", "not followed"),
        ("http://[x", "no URL"),
    ],
)
async def test_a_form_is_led_to_no_private_place_and_out_of_the_web_neither(
    site, fetcher, monkeypatch, target, reason
):
    site.leads["/a"] = 308, target
    # Of this site alone it is said that it is in public.
    port = int(site.url.rpartition(":")[2])
    monkeypatch.setattr(
        "shared.runtime.fetching.is_inside", lambda address_info: address_info[4][1] != port
    )
    fetcher._allow_private = False
    with pytest.raises(FetchFailed, match=reason):
        await send(fetcher, f"{site.url}/a")
    assert len(site.asked) == 1


async def test_where_a_form_may_not_be_led_its_server_hears_no_more(site, fetcher):
    site.leads["/a"] = 307, "/b"
    with pytest.raises(FetchFailed, match=r"it redirects to .*/b, which is not followed"):
        await send(fetcher, f"{site.url}/a", lambda before, after: False)
    assert len(site.asked) == 1
