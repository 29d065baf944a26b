"""Sitemaps as sites write them, and as attackers do."""

import gzip

import pytest

from services.poller.sites.documents import Document
from services.poller.sites.entries import MOST_TEXT, BadDocument, Entry
from services.poller.sites.sitemaps import TOKEN_BYTES, TextReader
from services.poller.sites.unpacking import Unpacker
from shared.runtime.unpacking import MOST_JOINED, PART_BYTES

URLSET = b'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'


def read_parts(document: Document, body: bytes, part: int):
    for begin in range(0, len(body), part):
        document.feed(body[begin : begin + part])


def read(body: bytes, part: int = 1 << 20):
    """Kind, hint and entries, the body coming in parts."""
    entries: list[Entry] = []
    document = Document("https://a.example/sitemap.xml", entries.append, None)
    read_parts(document, body, part)
    document.end()
    summary = document._reader.close()
    return summary.kind, summary.hint_seconds, [tuple(entry) for entry in entries]


PLAIN = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n'
    + URLSET
    + b"<url><loc> https://a.example/1?x=1&amp;y=2"
    b"\n</loc><lastmod>2026-01-02</lastmod><changefreq>Daily</changefreq></url>"
    b"<url><lastmod>2026-01-03</lastmod></url><url><loc>https://a.example/2</loc></url></urlset>"
)
ENTRIES = [("https://a.example/1?x=1&y=2", "2026-01-02"), ("https://a.example/2", "")]


@pytest.mark.parametrize("part", [1, 7, 1 << 20])
@pytest.mark.parametrize("pack", [bytes, gzip.compress, lambda b: gzip.compress(gzip.compress(b))])
def test_a_sitemap_is_read_however_it_is_packed_and_cut(pack, part):
    assert read(pack(PLAIN), part) == ("sitemap", 86_400.0, ENTRIES)


@pytest.mark.parametrize(
    "body",
    [
        b"\xef\xbb\xbf" + PLAIN,
        b"\r\n \t" + PLAIN,
        b"\xef\xbb\xbf\n\n" + PLAIN,
        PLAIN.decode().replace("UTF-8", "UTF-16").encode("utf-16"),
        PLAIN.replace(b"<url", b"<s:url").replace(b"</url", b"</s:url")
        .replace(b"loc>", b"s:loc>").replace(b"</s:loc", b"</s:loc")
        .replace(b"<lastmod", b"<s:lastmod").replace(b"</lastmod", b"</s:lastmod")
        .replace(b"changefreq>", b"s:changefreq>").replace(b"</s:ch", b"</s:ch"),
        gzip.compress(PLAIN[:100]) + gzip.compress(PLAIN[100:]) + b"\0\0",
    ],
)  # fmt: skip
def test_marks_encodings_prefixes_and_joined_files_change_nothing(body):
    assert read(body)[2] == ENTRIES


@pytest.mark.parametrize("part", [1, 3, 1000, 1 << 20])
@pytest.mark.parametrize(
    ("declared", "encoding"),
    [
        ("Shift_JIS", "cp932"),
        ("EUC-JP", "euc-jp"),
        ("iso-2022-jp", "iso-2022-jp"),
        ("GB2312", "gb18030"),
        ("big5", "big5hkscs"),
        ("euc-kr", "euc-kr"),
        ("windows-1252", "cp1252"),
        ("UTF-16", "utf-16"),
        ("UTF-16", "utf-16-be"),
        ("UTF-16LE", "utf-16-le"),
        ("UTF-32", "utf-32"),
        ("UTF-16", "utf-8"),
    ],
)
def test_a_sitemap_is_read_in_whatever_encoding(declared, encoding, part):
    letters = {"cp1252": "é€", "euc-kr": "한국"}.get(encoding, "日本")
    text = PLAIN.decode().replace("UTF-8", declared).replace("example/2", f"example/{letters}")
    text = text.replace("<url>", f"<!-- {letters * 2000} --><url>", 1)
    first, second = ENTRIES
    assert read(text.encode(encoding), part)[2] == [first, (f"{second[0][:-1]}{letters}", "")]


@pytest.mark.parametrize("part", [1, 3, 1 << 20])
@pytest.mark.parametrize(
    ("damaged", "good"),
    [
        (b"&#55357;&#56960;", "\U0001f680"),
        (b"&#xD83D;&#xDE80;", "\U0001f680"),
        (b"&#xD83D;", None),
        (b"&#56960;", None),
        (b"\xe9", None),
        ("\ufffd".encode(), None),
    ],
)
def test_what_cannot_be_read_costs_its_entry_and_not_the_file(damaged, good, part):
    entries: list[Entry] = []
    document = Document("https://a.example/sitemap.xml", entries.append, None)
    body = PLAIN.replace(b"example/2", b"example/" + damaged).replace(
        b"<url><loc>", b"<url><title>" + damaged + b"</title><loc>"
    )
    read_parts(document, body, part)
    document.end()
    assert document._reader.close().bad_entries == (0 if good else 1)
    kept = [(f"https://a.example/{good}", "")] if good else []
    assert [tuple(entry) for entry in entries] == [ENTRIES[0], *kept]


@pytest.mark.parametrize("part", [1, 3, 1 << 20])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_a_text_has_lines_in_whatever_encoding(encoding, part):
    text = "https://a.example/1\r\nhttps://a.example/日本\r\n"
    urls = [("https://a.example/1", ""), ("https://a.example/日本", "")]
    assert read(text.encode(encoding), part) == ("sitemap", None, urls)


COMMENTS = [
    b"<!-- %s -->" % (b"x" * 5000),
    b"<!-- %s -->" % (b"x" * 200_000),
    b"<!-- no <rss>, nor a <feed > -->",
    b"<!---->" * 2000,
    # The root begins at the last of the first 4,096 bytes, after the declaration.
    b"<!--%s-->" % (b"x" * (4096 - 40 - 8)),
    b"\n" * 5000,
]
"""And blanks."""


@pytest.mark.parametrize("part", [7, 1000, 1 << 20])
@pytest.mark.parametrize("comment", COMMENTS, ids=range(len(COMMENTS)))
def test_a_comment_in_front_may_be_long_and_name_anything(comment, part):
    assert read(PLAIN.replace(URLSET, comment + b"\n" + URLSET), part)[2] == ENTRIES
    feed = Document("https://a.example/feed", [].append, None)
    read_parts(feed, comment.replace(b"rss", b"urlset") + b"<rss/>", part)
    feed.end()
    assert feed._is_feed


@pytest.mark.parametrize("part", [100, 10_000, 1 << 20])
def test_what_never_says_what_it_is_is_held_no_further_than_a_comment_may_be(part):
    document = Document("https://a.example/sitemap.xml", [].append, None)
    with pytest.raises(BadDocument, match="neither a sitemap nor a feed"):
        read_parts(document, b"<!--" + b"x" * (4 * TOKEN_BYTES), part)
    assert len(document._held) < 2 * TOKEN_BYTES + part


def test_images_videos_and_the_dates_of_news_are_told_apart():
    body = (
        URLSET.replace(b">", b' xmlns:image="i" xmlns:news="n">')
        + b"<url><loc>https://a.example/1</loc><image:image><image:loc>https://a.example/1.png"
        b"</image:loc></image:image><news:news><news:publication_date>2026-01-02T03:04Z"
        b"</news:publication_date><news:title>t</news:title></news:news></url></urlset>"
    )
    assert read(body)[2] == [("https://a.example/1", "2026-01-02T03:04Z")]
    # Prefixes that nobody has declared are common.
    assert read(body.replace(b' xmlns:image="i"', b""))[2] == read(body)[2]


def test_an_index_has_sitemaps_and_a_text_has_lines():
    index = b"<sitemap><loc>/a.xml</loc><lastmod>2026-01-01</lastmod></sitemap>"
    index = b"<sitemapindex>" + index + b"</sitemapindex>"
    assert read(index) == ("index", None, [("/a.xml", "2026-01-01")])
    urls = [("https://a.example/1", ""), ("https://a.example/2", "")]
    for end in (b"\r\n", b"\n", b"\r"):
        text = b"\xef\xbb\xbfhttps://a.example/1" + 2 * end + b"https://a.example/2" + end
        for part in (1, 100):
            assert read(text, part) == ("sitemap", None, urls)


@pytest.mark.parametrize("part", [1, 7, 1 << 20])
@pytest.mark.parametrize(
    "bad",
    [
        b"see also https://a.example/3",
        b"ftp://a.example/",
        b"# my sitemap",
        b"\xff\xfe\0",
        b"https://a.example/\xe9",
        b"https://a.example/" + b"x" * 20_000,
    ],
)
def test_a_bad_line_of_a_text_is_passed_over_and_counted(bad, part):
    good = [b"https://a.example/1", b"https://a.example/2"]
    for place in range(3):
        lines = [*good[:place], bad, *good[place:]]
        found: list[Entry] = []
        reader = TextReader(found.append)
        text = b"\n".join(lines)
        for begin in range(0, len(text), part):
            reader.feed(text[begin : begin + part])
        assert reader.close() == ("sitemap", None, 1)
        assert [entry.url.encode() for entry in found] == good


def test_a_text_without_end_of_lines_stays_small():
    reader = TextReader(print)
    for _ in range(1000):
        reader.feed(b"x" * 10_000)
        assert len(reader._rest) <= MOST_TEXT
    with pytest.raises(BadDocument, match="nor a list of URLs"):
        reader.close()


def test_of_what_is_no_list_no_more_than_a_part_is_read():
    reader = TextReader(print)
    with pytest.raises(BadDocument, match="nor a list of URLs"):
        reader.feed(b"no\n" * 2000)


LAUGHS = (
    b'<!DOCTYPE urlset [<!ENTITY a "https://a.example/"><!ENTITY b "&a;&a;&a;&a;&a;&a;">]>'
    b"<urlset><url><loc>&b;</loc></url></urlset>"
)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (LAUGHS, "declares entities"),
        (
            b'<!DOCTYPE u [<!ENTITY x SYSTEM "file:///etc/passwd">]>' + PLAIN[39:],
            "declares entities",
        ),
        (PLAIN[:-20], "not well-formed"),
        (PLAIN + b"<more/>", "not well-formed"),
        (URLSET + b"<a>" * 5000, "within one another"),
        (b'<?xml version="1.0" encoding="no-such"?><urlset/>', "not well-formed"),
        (b'<?xml version="1.0" encoding="punycode"?><urlset/>', "unknown encoding 'punycode'"),
        (b'<?xml version="1.0" encoding="hex"?><urlset/>', "unknown encoding 'hex'"),
        (b"<!doctype html><html><body>not found</body></html>", "neither a sitemap nor a feed"),
        (b"<opml><body/></opml>", "neither a sitemap nor a feed"),
        (b"plain words", "nor a list of URLs"),
        (b"https://a.example/\n<urlset>\n<url>", "nor a list of URLs"),
        (b"https://a.example/\n" * 10_000 + b"\1\n" * 10_001, "nor a list of URLs"),
        (b"\0" * 100_000, "nor a list of URLs"),
        (b"", "it is empty"),
        (b" \n", "it is empty"),
        (b" \n" * TOKEN_BYTES, "it is empty"),
        (gzip.compress(PLAIN)[:-9], "broken off"),
        (b"\x1f\x8b" + b"x" * 100, "damaged"),
        # Few bytes, packed once more, and each that is joined costs time.
        (gzip.compress(b"") * (MOST_JOINED + 1), "are joined"),
        (gzip.compress(gzip.compress(b"") * (MOST_JOINED + 1)), "are joined"),
    ],
)
def test_what_is_no_sitemap_is_refused_with_the_reason(body, reason):
    with pytest.raises(BadDocument, match=reason):
        read(body)


@pytest.mark.parametrize("part", [1, 7, 1 << 20])
@pytest.mark.parametrize(
    "behind",
    [b"", b"\n", b"\x1f", b"<!-- cached -->", b"\0" * 30, b"\0" * 30 + b"\n"],
    ids=["nothing", "line", "half a mark", "comment", "zeros", "zeros and a line"],
)
def test_what_follows_a_packed_sitemap_and_is_not_packed_takes_nothing_away(behind, part):
    body = gzip.compress(PLAIN) + behind
    assert read(body, part)[2] == ENTRIES
    assert read(gzip.compress(body), part)[2] == ENTRIES


@pytest.mark.parametrize("part", [1, 7, 1 << 20])
def test_a_packed_sitemap_may_be_joined_from_many(part):
    every_line = b"".join(gzip.compress(line) + b"\0" * 5 for line in PLAIN.splitlines(True))
    assert read(every_line, part)[2] == ENTRIES


def test_a_bomb_is_unpacked_no_further_than_the_limit():
    bomb = gzip.compress(b" " * 60_000_000, 9)
    assert len(bomb) < 100_000
    parts: list[bytes] = []
    with pytest.raises(BadDocument, match="unpacked it has more"):
        parts.extend(Unpacker(1_000_000).feed(bomb))
    assert 0 < max(map(len, parts)) <= PART_BYTES
    with pytest.raises(BadDocument, match="unpacked it has more"):
        list(Unpacker(1_000_000).feed(gzip.compress(bomb, 9)))


def test_a_tag_that_never_ends_is_given_up():
    with pytest.raises(BadDocument, match="a tag or a comment"):
        read(b'<urlset a="' + b"x" * (3 * TOKEN_BYTES), TOKEN_BYTES // 2)


def test_more_entries_than_the_protocol_has_and_longer_addresses_are_left_out():
    one = b"<url><loc>https://a.example/</loc></url>"
    assert len(read(URLSET + one * 50_100 + b"</urlset>")[2]) == 50_000
    long = one.replace(b"example/", b"example/" + b"x" * 10_000)
    assert read(URLSET + long + one + b"</urlset>")[2] == [("https://a.example/", "")]
