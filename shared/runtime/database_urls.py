"""Whether libpq will understand a database URL.

It says what it does not understand with the words in question, which are often the password: so
that is found here first, and told without them.
"""

import re
from typing import Final

_SCHEMES: Final = ("postgresql://", "postgres://")

_NO_CODE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})|%00")

_AUTHORITY: Final = re.compile(r"[^/?]*")
"""What comes after the scheme: user, password, hosts and ports."""

_HOST: Final = re.compile(r"(?:\[[^\]]*\]|[^:\[\]]*)(?::\d*)?")

_WORDS: Final = re.compile(
    r"\s*(?:\w+\s*=\s*(?:'(?:[^'\\]|\\.)*'|(?!')(?:[^\s\\]|\\.)*)(?:\s+|$))*"
)
"""libpq's other form: `host=db dbname=freshet`."""

_WRITTEN: Final = "in a password write %25 for %, %2F for /, %3A for :, %3F for ? and %40 for @"


def check_database_url(name: str, url: str) -> None:
    """Refuse what libpq would not understand. An empty one is all by libpq's own variables.

    Args:
        name: of the setting.
        url: that it says.

    Raises:
        ValueError: says what is wrong, and nothing of the URL, which may be secret.
    """
    if not url.startswith(_SCHEMES):
        if not _WORDS.fullmatch(url):
            raise ValueError(
                f"{name}: it must begin with postgresql://, or consist of words like "
                "host=db dbname=freshet"
            )
        return
    if _NO_CODE.search(url):
        raise ValueError(f"{name}: a % in it is no code of a character: {_WRITTEN}")
    authority = _AUTHORITY.match(url.partition("://")[2])
    hosts = authority[0].rpartition("@")[2] if authority is not None else ""
    if not all(_HOST.fullmatch(host) for host in hosts.split(",")):
        raise ValueError(f"{name}: what follows the host is no port: {_WRITTEN}")
