"""Which URLs an operator wants, by patterns with `*`."""

import re
from collections.abc import Sequence
from fnmatch import translate


class Patterns:
    """Patterns of whole URLs.

    `*` stands for anything, `?` for a character, `[ab]` for one of several. What is matched takes
    time in proportion to the URL and the pattern, whatever stands in them: no part is ever tried
    again once it has fitted.
    """

    def __init__(self, include: Sequence[str], exclude: Sequence[str]) -> None:
        """Make them.

        Args:
            include: empty: all URLs fit.
            exclude: what fits one of these does not pass.
        """
        self._include = [re.compile(translate(pattern)) for pattern in include]
        self._exclude = [re.compile(translate(pattern)) for pattern in exclude]

    def let_pass(self, url: str) -> bool:
        """Whether a URL is wanted."""
        if self._include and not any(pattern.match(url) for pattern in self._include):
            return False
        return not any(pattern.match(url) for pattern in self._exclude)
