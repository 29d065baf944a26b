"""URLs of all kinds, good and bad, for whatever names pages."""

from hypothesis import strategies as st

LABEL, PATH, QUERY = "abz09-", "aZ09_~.%-", "aZ09_~./=&+?'-"
ODD_HOSTS = ["1.2.3.4", "a.0x7f", "xn--a.com", "a.xn--bcher-kva", "ab--c.de", "a.b1"]

urls = st.one_of(
    st.text(max_size=80),
    st.builds(
        "{}://{}{}{}".format,
        st.sampled_from(["http", "https", "HTTP", "ftp", "javascript", ""]),
        st.sampled_from(["", "u@", "u:p@"]),
        st.text(max_size=20) | st.from_regex(r"[a-zA-Z0-9.%\[\]:_-]{1,20}", fullmatch=True),
        st.text(max_size=30) | st.from_regex(r"[/?#a-zA-Z0-9.%&=+~ -]{0,40}", fullmatch=True),
    ),
)
"""Any text, and what looks like a URL."""


def some_of(rng, alphabet, least, most):
    return "".join(rng.choices(alphabet, k=rng.randint(least, most)))


def plain_url(rng):
    """A URL that may be canonical, without anything that only a parser can read."""
    hosts = [
        "".join(some_of(rng, LABEL, 1, 8) + "." for _ in range(rng.randint(0, 3)))
        + some_of(rng, LABEL, 1, 5)
        + rng.choice(["", "", "", ".", ":80", ":443", ":8080"]),
        *ODD_HOSTS,
        "a" * rng.randint(60, 66) + ".com",
        "a." * rng.randint(120, 130) + "com",
    ]
    [host] = rng.choices(hosts, [9, *[1] * (len(hosts) - 1)])
    path = "".join("/" + some_of(rng, PATH, 0, 4) for _ in range(rng.randint(0, 4)))
    if rng.random() < 0.03:
        path = "/" * rng.randint(2020, 2050)
    query = rng.choice(["", "?" + some_of(rng, QUERY, 0, 6)])
    return f"{rng.choice(['http', 'https'])}://{host}{path}{query}"
