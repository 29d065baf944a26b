"""A process that ends is not disturbed by those who tell it to end once more."""

import subprocess
import sys
import textwrap

ENDS = """
import asyncio, os, signal
from shared.runtime.ending import STOP_SIGNALS, ignore_further_stops

heard = []
loop = asyncio.new_event_loop()
for number in STOP_SIGNALS:
    loop.add_signal_handler(number, heard.append, number)
os.kill(os.getpid(), signal.SIGTERM)
loop.run_until_complete(asyncio.sleep(0.01))
{ending}
# What the loop's end begins with: from here on nobody reads what a signal writes.
loop._close_self_pipe()
for number in STOP_SIGNALS:
    os.kill(os.getpid(), number)
print(len(heard), flush=True)
os._exit(0)
"""


def end(ending: str) -> subprocess.CompletedProcess[str]:
    program = textwrap.dedent(ENDS).format(ending=ending)
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_second_stop_while_the_loop_closes_leaves_no_trace() -> None:
    done = end("ignore_further_stops(loop)")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def test_without_that_it_would_be_written_to_a_pipe_that_is_gone() -> None:
    assert "Bad file descriptor" in end("").stderr
