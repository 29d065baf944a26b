"""Check the types of what is shipped, with less of the machine than `mypy` takes by itself.

Next to nothing of what a type checker makes is garbage before it ends, and it makes millions of
objects: looking for garbage takes two fifths of a first check. So nobody looks for any.

    python tests/check_types.py [options of mypy]
"""

import gc
import sys

from mypy.main import main


def keep_everything() -> None:
    """Let nobody in this process look for garbage; mypy would switch that on between its parts."""
    gc.disable()
    gc.enable = gc.disable


if __name__ == "__main__":
    keep_everything()
    main(stdout=sys.stdout, stderr=sys.stderr)
