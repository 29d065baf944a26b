"""Why a request is not taken."""


class Refused(Exception):
    """A request is answered with an error; the text says why, to whoever sent it."""

    def __init__(self, status: int, reason: str, retry_seconds: int | None = None) -> None:
        """Say why.

        Args:
            status: of the HTTP answer.
            reason: for people.
            retry_seconds: when it may be tried again; None: not as it is.
        """
        super().__init__(reason)
        self.status = status
        self.retry_seconds = retry_seconds

    @property
    def headers(self) -> dict[str, str]:
        """Of the answer."""
        return {} if self.retry_seconds is None else {"Retry-After": str(self.retry_seconds)}


def too_fast(what: str, seconds: float) -> Refused:
    """429, for who sends more than it may."""
    return Refused(429, f"too many: {what}", max(int(seconds + 1), 1))
