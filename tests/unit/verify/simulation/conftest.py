"""What a simulation leaves behind goes with its test: tasks of killed workers, never awaited."""

import gc
import logging
import sys
import warnings

import pytest


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    """Else the next collection, in a test of others, would complain of them there."""
    yield
    hook, asyncio_log = sys.unraisablehook, logging.getLogger("asyncio")
    sys.unraisablehook, asyncio_log.disabled = lambda _: None, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.collect()
    finally:
        sys.unraisablehook, asyncio_log.disabled = hook, False
