"""Whether libpq will understand a database URL.

It says what it does not understand with the words in question, which are often the password: so
that is found here first, and told without them.
"""

import re
from typing import Final
from urllib.parse import unquote

from shared.contracts.databases import SCHEMES

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
    if not url.startswith(SCHEMES):
        if not _WORDS.fullmatch(url):
            raise ValueError(
                f"{name}: it must begin with postgresql://, or consist of words like "
                "host=db dbname=freshet"
            )
        return
    if _NO_CODE.search(url) or not _is_text(url):
        raise ValueError(f"{name}: a % in it is no code of a character: {_WRITTEN}")
    authority = _AUTHORITY.findall(url.partition("://")[2])[0]
    if authority.count("@") > 1:
        # libpq ends the password at the first one, and says what it then looks up as a host.
        raise ValueError(f"{name}: there is more than one @ before the database: {_WRITTEN}")
    hosts = authority.rpartition("@")[2]
    if not all(_HOST.fullmatch(host) for host in hosts.split(",")):
        raise ValueError(f"{name}: what follows the host is no port: {_WRITTEN}")


def _is_text(url: str) -> bool:
    """Whether what is written in codes of characters is some in UTF-8."""
    try:
        unquote(url, errors="strict")
    except UnicodeDecodeError:
        return False
    return True
