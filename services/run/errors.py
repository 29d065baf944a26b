"""Why a run does not start, or ends early."""


class RunRefused(Exception):
    """What was asked for cannot be done here; the text says what to ask for instead."""


class RunFailed(Exception):
    """A part of the system did not start, or died; the text says where to look."""
