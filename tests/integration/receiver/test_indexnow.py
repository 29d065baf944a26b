"""IndexNow over real HTTP: key files are fetched, and what is answered is on the broker."""

import asyncio

import pytest
from aiohttp import web

pytestmark = pytest.mark.slow(2)

KEY = "0123456789abcdef"


def submission(site, *paths, **more):
    return {"host": site.host, "key": KEY, "urlList": [site.url + path for path in paths]} | more


async def test_urls_of_a_host_that_shows_its_key_become_signals(start, site):
    site.files[f"/{KEY}.txt"] = f"\ufeff{KEY}\n"
    site.files["/shop/key.txt"] = KEY
    receiver = await start(signal_source_keys={"indexnow": "secret"})

    assert (await receiver.get("/indexnow", url=f"{site.url}/a", key=KEY))[0] == 200
    many = [f"/many/{n}" for n in range(1000)]
    assert (await receiver.post_json("/IndexNow", submission(site, *many)))[0] == 200
    shop = submission(site, "/shop/b", keyLocation=f"{site.url}/shop/key.txt")
    assert (await receiver.post_json("/indexnow", shop))[0] == 200
    outside = submission(site, "/help/", keyLocation=f"{site.url}/shop/key.txt")
    assert (await receiver.post_json("/indexnow", outside))[0] == 422

    async def elsewhere(request):
        raise web.HTTPFound(f"{site.url}/{KEY}.txt")

    # Many sites lead wherever a visitor likes: that proves nothing.
    site.files["/out.txt"] = elsewhere
    led_on = submission(site, "/c", keyLocation=f"{site.url}/out.txt")
    assert (await receiver.post_json("/indexnow", led_on))[0] == 403
    climbing = submission(site, "/shop/../help/", keyLocation=f"{site.url}/shop/key.txt")
    assert (await receiver.post_json("/indexnow", climbing))[0] == 422

    signals = await receiver.signals(1002)
    assert {s.source for s in signals} == {"indexnow"}
    expected = {f"{site.url}{path}" for path in ["/a", "/shop/b", *many]}
    assert {s.url for s in signals} == expected
    # Each file was fetched once.
    assert sorted(site.asked) == sorted([f"/{KEY}.txt", "/shop/key.txt", "/out.txt"])


async def test_what_is_no_submission_is_refused_as_the_protocol_says(start, site):
    site.files["/wrong.txt"] = "another key"
    site.files["/right.txt"] = KEY
    receiver = await start(receiver_urls_per_sender_per_second=0.1)

    async def posted(**more):
        return (await receiver.post_json("/indexnow", submission(site, "/a") | more))[0]

    assert (await receiver.post("/indexnow", b"{"))[0] == 400
    assert (await receiver.get("/indexnow", url=f"{site.url}/a"))[0] == 400
    assert (await receiver.get("/indexnow", url="no url", key=KEY))[0] == 400
    assert await posted(urlList=[]) == 400
    assert await posted(urlList=[f"{site.url}/{n}" for n in range(10_001)]) == 400
    assert await posted(urlList=["ftp://x.example/"]) == 400
    assert await posted(urlList=[f"{site.url}/a", "https://other.example/a"]) == 422
    assert await posted(key="short") == 422
    assert await posted(key="x" * 129) == 422
    assert await posted(key="under_score") == 422
    assert await posted(keyLocation="https://other.example/key.txt") == 422
    assert await posted(keyLocation=f"{site.url}/echo?text={KEY}") == 422
    assert site.asked == []
    assert await posted(keyLocation=f"{site.url}/wrong.txt") == 403
    assert await posted(keyLocation=f"{site.url}/right.txt") == 200
    # A host that sends too much is told when to come again.
    body = submission(site, "/b", keyLocation=f"{site.url}/right.txt")
    async with receiver.client.post(f"{receiver.url}/indexnow", json=body) as answer:
        assert answer.status == 429
        assert 1 <= int(answer.headers["Retry-After"]) <= 10
    # Keys that nobody knows draw a few requests at a host at once, of one visitor four of five.
    made_up = [await posted(keyLocation=f"{site.url}/{n}.txt") for n in range(20)]
    assert set(made_up) == {403, 429}
    assert made_up[:2] == [403] * 2
    assert made_up.count(403) == len(site.asked) - 2
    assert [signal.url for signal in await receiver.signals(1)] == [f"{site.url}/a"]


async def test_while_the_key_is_looked_for_signals_are_of_a_source_of_their_own(start, site):
    asked, shown = asyncio.Event(), asyncio.Event()

    async def slow(request):
        asked.set()
        await shown.wait()
        return web.Response(text=KEY)

    site.files[f"/{KEY}.txt"] = slow
    receiver = await start(indexnow_key_wait_seconds=0.01)
    assert (await receiver.post_json("/indexnow", submission(site, "/a")))[0] == 202
    await asked.wait()
    shown.set()
    while (await receiver.post_json("/indexnow", submission(site, "/b")))[0] == 202:
        await asyncio.sleep(0.02)
    async with receiver.client.get(f"{receiver.process.url}/metrics") as answer:
        metrics = await answer.text()
    assert 'freshet_receiver_key_checks_total{result="valid"} 1.0' in metrics
    assert 'freshet_receiver_signals_total{source="indexnow-unchecked"}' in metrics
    assert 'freshet_receiver_signals_total{source="indexnow"} 1.0' in metrics


async def test_engines_share_urls_of_many_hosts_by_their_published_keys(start, site):
    engine = f'{{"host": "engine.example", "publicKeys": ["{KEY}"], "notifierIPs": [{{}}]}}'
    site.files["/list.json"] = f'{{"one": "{site.url}/one.json", "two": "{site.url}/two.json"}}'
    site.files["/one.json"] = engine.replace("{}", '{"ipv4Prefix": "127.0.0.0/8"}')
    # Its key is published, but nobody calls from its address here.
    elsewhere = engine.replace("engine.example", "far.example")
    site.files["/two.json"] = elsewhere.replace("{}", '{"ipv4Prefix": "203.0.113.0/24"}')
    receiver = await start(indexnow_engines=f"{site.url}/list.json", indexnow_key_wait_seconds=0.01)
    urls = ["https://one.example/a", "https://two.example/b"]
    body = {"host": "engine.example", "key": KEY, "urlList": urls}
    while (await receiver.post_json("/indexnow?noreping", body))[0] != 200:
        await asyncio.sleep(0.02)
    for change in ({"host": "far.example"}, {"key": KEY[::-1]}):
        assert (await receiver.post_json("/indexnow?noreping", body | change))[0] == 422
    assert (await receiver.post_json("/indexnow", body))[0] == 422
    assert {(s.url, s.source) for s in await receiver.signals(2)} == {
        (url, "indexnow-shared") for url in urls
    }
