"""Who may send as which source: `Authorization: Bearer TOKEN`."""

import hashlib
import hmac
from collections.abc import Mapping

from pydantic import SecretStr

from services.receiver.refusing import Refused


class Tokens:
    """The operator's tokens, a source each."""

    def __init__(self, tokens: Mapping[str, SecretStr]) -> None:
        self._digests: list[tuple[str, bytes]] = []
        self.replace(tokens)

    def replace(self, tokens: Mapping[str, SecretStr]) -> None:
        """Let others hold, and no other. An empty one, which anybody shows, holds for nobody."""
        texts = {source: token.get_secret_value() for source, token in tokens.items()}
        self._digests = [(source, _digest(text)) for source, text in texts.items() if text]

    def source_of(self, authorization: str) -> str:
        """The source whose token it is; takes as long whichever it is, and if it is none.

        Args:
            authorization: the header.

        Raises:
            Refused: 401, nobody's.
        """
        kind, _, token = authorization.partition(" ")
        shown = _digest(token.strip())
        found = [source for source, own in self._digests if hmac.compare_digest(own, shown)]
        if kind.lower() != "bearer" or not found:
            raise Refused(401, "send `Authorization: Bearer TOKEN` with the token of a source")
        return found[0]


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
