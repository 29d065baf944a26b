"""The commands of a documentation's page, run as it has them."""

import os
import re
import shlex
import subprocess
from pathlib import Path

from click.testing import CliRunner

from services.cli.main import main

OPERATE = Path(__file__).parents[3] / "docs/operate"


def freshet(*arguments):
    """What a command of Freshet's says; it has to end well."""
    result = CliRunner().invoke(main, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def blocks(page, section):
    """The blocks of commands under a heading, each command as its words."""
    [text] = re.findall(
        rf"^## {section}\n(.*?)(?=^## |\Z)", (OPERATE / page).read_text(), re.DOTALL | re.MULTILINE
    )
    found = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [
        [shlex.split(os.path.expandvars(line)) for line in block.splitlines()] for block in found
    ]


def follow(commands, programs):
    """Run commands; returns what each of Freshet's said.

    Args:
        commands: a block of a page.
        programs: folder of PostgreSQL's.
    """
    said = {}
    for program, *arguments in commands:
        if program == "freshet":
            said[" ".join(arguments[:2])] = freshet(*arguments)
            continue
        done = subprocess.run(
            [programs / program, *arguments], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    return said
