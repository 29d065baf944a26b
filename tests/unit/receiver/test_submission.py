"""IndexNow submissions: whose URLs they are, and which key speaks for them."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from services.receiver.indexnow.engines import engine_of
from services.receiver.indexnow.submission import key_file, of_body, of_query, pings_within
from services.receiver.refusing import Refused
from services.receiver.tokens import Tokens
from services.receiver.worker import check_tokens
from shared.runtime.settings import Settings, SettingsError

KEY = "0123456789abcdef"


def posted(*urls, **more):
    value = {"host": "www.a.example", "key": KEY, "urlList": list(urls)} | more
    return of_body(json.dumps(value).encode())


def status_of(work, *arguments, **more):
    with pytest.raises(Refused) as refused:
        work(*arguments, **more)
    return refused.value.status


def test_a_mark_before_the_text_is_passed_over():
    body = json.dumps({"host": "a.example", "key": KEY, "urlList": ["https://a.example/"]}).encode()
    assert of_body(b"\xef\xbb\xbf" + body) == of_body(body)


def test_the_key_stands_where_the_protocol_says():
    file = key_file(posted("https://www.a.example/x"))
    assert (file.urls, file.folder) == ((f"https://www.a.example/{KEY}.txt",), "/")
    file = key_file(posted("https://www.a.example/x", "http://www.a.example/y"))
    assert [url.partition(":")[0] for url in file.urls] == ["https", "http"]
    place = "http://www.a.example/shop/../catalog/key.txt"
    file = key_file(posted("http://www.a.example/", keyLocation=place))
    assert (file.urls, file.folder) == (
        ("http://www.a.example/catalog/key.txt",),
        "/catalog/",
    )


@pytest.mark.parametrize(
    ("url", "status"),
    [
        ("https://www.a.example/catalog/x", None),
        ("http://WWW.A.EXAMPLE:80/catalog/%78", None),
        ("https://www.a.example/catalog", 422),
        ("https://www.a.example/catalogue/x", 422),
        ("https://www.a.example/catalog/../help", 422),
        ("https://www.a.example/catalog/%2e%2e/help", 422),
        ("https://www.a.example?/catalog/", 422),
        ("https://a.example/catalog/x", 422),
        ("https://www.a.example:8443/catalog/x", 422),
        ("https://www.a.example.evil.example/catalog/x", 422),
        ("https://www.a.example@evil.example/catalog/x", 400),
        ("//www.a.example/catalog/x", 400),
    ],
)
def test_a_folders_key_speaks_for_its_folder_alone(url, status):
    arguments = ((url,), "www.a.example", "/catalog/")
    if status is None:
        [ping] = pings_within(*arguments, allow_private=False)
        assert ping.host == "www.a.example"
    else:
        assert status_of(pings_within, *arguments, allow_private=False) == status


def test_private_hosts_are_not_taken_unless_the_operator_says_so():
    for host in ("127.0.0.1", "10.0.0.1:8080", "[::1]", "intranet", "db.internal"):
        arguments = ((f"http://{host}/a",), host, "/")
        assert status_of(pings_within, *arguments, allow_private=False) == 422
        assert pings_within(*arguments, allow_private=True)


@pytest.mark.parametrize("host", ["A.example", "a.example:443", "a.example:80", "a.example."])
def test_a_host_may_be_written_with_the_port_that_goes_without_saying(host):
    submission = posted("https://a.example/x", host=host)
    assert submission.host == "a.example"
    assert key_file(submission).urls == (f"https://a.example/{KEY}.txt",)
    assert posted("https://a.example:8443/", host="a.example:8443").host == "a.example:8443"


@pytest.mark.parametrize("host", ["", "a.example/x", "a.example?x", "u@a.example", "a b", "a..b"])
def test_a_host_is_an_authority(host):
    assert status_of(posted, "https://a.example/", host=host) == 400


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=60) | st.none())
def test_no_query_makes_a_submission_fail(url, key, location):
    query = {"url": url, "key": key} | ({} if location is None else {"keyLocation": location})
    with contextlib.suppress(Refused):
        key_file(of_query(query))


@given(st.binary(max_size=100))
def test_no_body_makes_a_submission_fail(body):
    assert status_of(of_body, body) == 400


@pytest.mark.parametrize(
    "published",
    [
        {},
        {"host": "e.example", "publicKeys": [KEY]},
        {"host": "e.example", "publicKeys": [KEY], "notifierIPs": [{"ipv4Prefix": "300.0.0.0/8"}]},
        {"host": 3, "publicKeys": [], "notifierIPs": []},
    ],
)
def test_an_engine_that_publishes_no_addresses_is_none(published):
    with pytest.raises(ValueError, match=r"notifierIPs|300"):
        engine_of(published)


def test_an_engine_is_its_key_from_its_address():
    engine = engine_of(
        {
            "host": "E.example",
            "publicKeys": [{"key": KEY}, "other-key", 3],
            "notifierIPs": [{"ipv4Prefix": "192.0.2.0/24"}, {"ipv6Prefix": "2001:db8::/32"}],
        }
    )
    assert engine.host == "e.example"
    assert engine.sent_from("192.0.2.9", KEY)
    assert engine.sent_from("2001:db8::1", "other-key")
    for address, key in (("192.0.3.9", KEY), ("192.0.2.9", "third-key"), ("", KEY), ("x", KEY)):
        assert not engine.sent_from(address, key)


@pytest.mark.parametrize(
    "tokens", [{"indexnow": "x"}, {"websub": "x"}, {"a": "x", "b": "x"}, {"a": ""}]
)
def test_no_token_speaks_for_others(tokens):
    given = {name: SecretStr(token) for name, token in tokens.items()}
    settings = Settings().model_copy(update={"receiver_tokens": given})
    with pytest.raises(SettingsError, match="FRESHET_RECEIVER_TOKENS"):
        check_tokens(settings)


@pytest.mark.parametrize("shown", ["Bearer", "Bearer ", "bearer   ", ""])
def test_an_empty_token_is_nobodys(shown):
    tokens = Tokens({"cms": SecretStr(""), "shop": SecretStr("two")})
    with pytest.raises(Refused, match="Authorization"):
        tokens.source_of(shown)
    assert tokens.source_of("Bearer two") == "shop"
