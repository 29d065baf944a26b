"""Events of streams, made by hand from their published schemas."""

import json


def recent_change(number: int, **more) -> dict:
    """<https://schema.wikimedia.org>, mediawiki/recentchange 1.0.0."""
    change = {
        "$schema": "/mediawiki/recentchange/1.0.0",
        "meta": {
            "uri": f"https://en.wiki.example/wiki/Page_{number}",
            "request_id": "2ac94da7-8e1a-4b1e-9c0c-0f1a5a1a5a1a",
            "id": f"00000000-0000-4000-8000-{number:012d}",
            "domain": "en.wiki.example",
            "stream": "mediawiki.recentchange",
            "dt": f"2026-01-01T00:00:{number % 60:02d}Z",
            "topic": "eqiad.mediawiki.recentchange",
            "partition": 0,
            "offset": 5_000_000 + number,
        },
        "id": 1_900_000_000 + number,
        "type": "edit",
        "namespace": 0,
        "title": f"Page {number}",
        "comment": "typo",
        "timestamp": 1_767_225_600 + number % 60,
        "user": "Somebody",
        "bot": False,
        "minor": True,
        "length": {"old": 100, "new": 101},
        "revision": {"old": 1, "new": 2},
        "server_url": "https://en.wiki.example",
        "server_name": "en.wiki.example",
        "wiki": "enwiki",
    }
    return change | more


def canary(number: int) -> dict:
    """What Wikimedia sends so that no stream is ever silent."""
    change = recent_change(number)
    return change | {"meta": change["meta"] | {"domain": "canary"}}


def page_change(number: int, kind: str = "edit", *, by_bot: bool = False) -> dict:
    """mediawiki/page/change 1.2.0."""
    return {
        "$schema": "/mediawiki/page/change/1.2.0",
        "meta": recent_change(number)["meta"] | {"stream": "mediawiki.page_change.v1"},
        "changelog_kind": "update",
        "page_change_kind": kind,
        "wiki_id": "enwiki",
        "dt": f"2026-01-01T00:00:{number % 60:02d}Z",
        "page": {"page_id": number, "page_title": f"Page_{number}", "namespace_id": 0},
        "performer": {"user_text": "Somebody", "is_bot": by_bot, "groups": ["user"]},
        "revision": {"rev_id": 2, "rev_dt": "2026-01-01T00:00:00Z", "rev_size": 101},
    }


def post(number: int, collection: str = "app.bsky.feed.post") -> dict:
    """A commit, as Jetstream sends it."""
    return {
        "did": f"did:plc:person{number % 3}",
        "time_us": 1_767_225_600_000_000 + 1000 * number,
        "kind": "commit",
        "commit": {
            "rev": "3l3qo2vuowo2b",
            "operation": "create",
            "collection": collection,
            "rkey": f"post{number}",
            "record": {"$type": collection, "text": "hello", "createdAt": "2026-01-01T00:00:00Z"},
            "cid": "bafyreidwaivazkwu67xztlmuobx35hs2lnfh3kolmgfmucldvhd3sgzcqi",
        },
    }


def wikimedia_id(number: int) -> str:
    """The id of an event: where each of its stream's topics stands."""
    places = [
        {"topic": "eqiad.mediawiki.recentchange", "partition": 0, "offset": 5_000_000 + number},
        {"topic": "codfw.mediawiki.recentchange", "partition": 0, "offset": -1},
    ]
    return json.dumps(places, separators=(",", ":"))
