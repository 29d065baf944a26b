"""Weblogs' pings: what they name, and XML that is made to do harm."""

import contextlib
import xmlrpc.client

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.receiver.refusing import Refused
from services.receiver.weblogs import MOST_BYTES, answer, read_call
from shared.runtime.signal_bounds import SignalBounds

BLOG = "https://blog.example/"


def call_read(body, *, allow_private_hosts=False):
    return read_call(body, SignalBounds(300.0, 9e9, allow_private_hosts))


def call(method, *parameters):
    return xmlrpc.client.dumps(parameters, method).encode()


def urls(body):
    return [ping.url for ping in call_read(body)]


def test_each_url_of_a_ping_is_a_page():
    assert urls(call("weblogUpdates.ping", "A blog", BLOG)) == [BLOG]
    more = (f"{BLOG}news", "category")
    assert urls(call("weblogUpdates.ping", "A blog", BLOG, *more)) == [BLOG, f"{BLOG}news"]
    extended = (BLOG, f"{BLOG}news", f"{BLOG}feed", "tag|tag")
    named = [BLOG, f"{BLOG}news", f"{BLOG}feed"]
    assert urls(call("weblogUpdates.extendedPing", "A blog", *extended)) == named


def test_a_url_that_is_said_twice_or_left_empty_is_one_page():
    assert urls(call("weblogUpdates.extendedPing", "x", BLOG, BLOG, "")) == [BLOG]


def test_what_senders_put_where_another_url_may_stand_is_left_out():
    for more in (("category",), ("/news",), ("", "category"), ("ftp://blog.example/",)):
        assert urls(call("weblogUpdates.ping", "x", BLOG, *more)) == [BLOG]
    extended = (BLOG, "category", f"{BLOG}feed")
    assert urls(call("weblogUpdates.extendedPing", "x", *extended)) == [BLOG, f"{BLOG}feed"]


def test_a_host_that_nobody_outside_can_reach_is_taken_only_where_the_operator_says_so():
    own = "http://localhost/x"
    body = call("weblogUpdates.ping", "x", own)
    with pytest.raises(Refused, match=r"^url: host 'localhost' is not on the public internet"):
        call_read(body)
    assert [ping.url for ping in call_read(body, allow_private_hosts=True)] == [own]
    assert urls(call("weblogUpdates.ping", "x", BLOG, own)) == [BLOG]


@pytest.mark.parametrize("before", [b"\n", b" \r\n\t", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n\n"])
def test_blanks_before_a_call_are_passed_over(before):
    # A blank line in one of its files, and a site in PHP sends all that it sends after it.
    assert urls(before + call("weblogUpdates.ping", "x", BLOG)) == [BLOG]


@pytest.mark.parametrize(
    ("encoding", "name"),
    [
        *(("EUC-JP", "日誌"), ("Shift_JIS", "表日誌"), ("GBK", "博客"), ("gb2312", "博客")),
        *(("Big5", "部落格"), ("EUC-KR", "블로그"), ("windows-1251", "Блог"), ("UTF-16", "Блог")),
    ],
)
def test_a_call_may_be_in_any_encoding_that_it_declares(encoding, name):
    said = call("weblogUpdates.ping", name, BLOG).decode()
    said = said.replace("<?xml version='1.0'?>", f'<?xml version="1.0" encoding="{encoding}"?>')
    assert urls(said.encode(encoding)) == [BLOG]


def test_a_name_that_cannot_be_read_says_nothing_of_the_address():
    # WordPress with a blog_charset of ISO-8859-1 declares nothing, and cuts names amid characters.
    said = call("weblogUpdates.ping", "NAME", BLOG, f"{BLOG}café")
    for name in ("Café".encode("latin-1"), b"&#55357;&#56960;", b"&#xD83D;"):
        assert urls(said.replace(b"NAME", name)) == [BLOG, f"{BLOG}caf%C3%A9"]
    latin = said.decode().encode("latin-1")
    assert urls(latin.replace(b"NAME", b"x")) == [BLOG]
    with pytest.raises(Refused, match="cannot be read"):
        call_read(call("weblogUpdates.ping", "x", f"{BLOG}é").decode().encode("latin-1"))


def test_strings_without_an_element_are_read():
    body = call("weblogUpdates.ping", "x", BLOG)
    bare = body.replace(b"<string>", b"").replace(b"</string>", b"")
    assert urls(bare) == [BLOG]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<methodCall>",
        b"<methodResponse/>",
        call("weblogUpdates.ping"),
        call("weblogUpdates.ping", "name only"),
        call("weblogUpdates.ping", "x", "ftp://blog.example/"),
        call("system.listMethods"),
        call("weblogUpdates.ping", "x", BLOG).replace(b"<?xml version='1.0'?>", b"<?xml ?>"),
        b'<?xml version="1.0" encoding="utf-99"?><methodCall/>',
        b"\xff\xfe\x00",
        b"x" * (MOST_BYTES + 1),
    ],
)
def test_what_is_no_such_call_is_refused(body):
    with pytest.raises(Refused):
        call_read(body)


LAUGHS = b"""<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;&a;">
<!ENTITY c "&b;&b;&b;&b;">]><methodCall><methodName>&c;</methodName></methodCall>"""
FILE = b"""<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>
<methodCall><methodName>&a;</methodName></methodCall>"""
OUTSIDE = b"""<?xml version="1.0"?><!DOCTYPE methodCall SYSTEM "http://127.0.0.1/x.dtd">
<methodCall><methodName>weblogUpdates.ping</methodName></methodCall>"""


@pytest.mark.parametrize("body", [LAUGHS, FILE, OUTSIDE])
def test_entities_and_document_types_are_refused_before_they_are_followed(body):
    with pytest.raises(Refused, match="not XML that is taken"):
        call_read(body)


def test_elements_within_elements_without_end_are_refused():
    body = b"<methodCall>" + b"<a>" * 5000
    with pytest.raises(Refused):
        call_read(body)


@given(st.binary(max_size=300) | st.text(max_size=200).map(lambda t: f"<methodCall>{t}".encode()))
def test_anything_at_all_is_read_or_refused(body):
    with contextlib.suppress(Refused):
        call_read(body)


def test_the_answer_is_what_clients_read():
    for failed in (False, True):
        [read], _ = xmlrpc.client.loads(answer("a < b & c", failed=failed).decode())
        assert read == {"flerror": failed, "message": "a < b & c"}
