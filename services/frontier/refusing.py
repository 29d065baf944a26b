"""What a client is told when something cannot be done."""

import grpc


class Refused(Exception):
    """A call that is not answered; the text says why, and what to do."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class NotStored(Exception):
    """The broker has not acknowledged a message, so it must be sent again; the text says why."""
