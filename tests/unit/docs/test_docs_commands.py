"""Every command that the documentation shows can be given, and every name in it exists."""

import importlib.util
import re
import shlex

import click
import pytest
from documents import documents
from scrapy_freshet.options import DEFAULTS as CLIENT_SETTINGS
from scrapy_freshet.spider_middleware import CANONICAL_KEY, DIGEST_KEY
from simulated_seeds import COUNT, FIRST

from deploy.docs import metrics
from deploy.docs.places import TOP
from services.cli.main import main
from shared.runtime.settings import known_variables
from shared.store.roles import ROLES

FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
STORIES = {"CHANGELOG.md"}
"""What was is told there too."""

TEXTS = {file: (TOP / file).read_text(encoding="utf-8") for file in documents()}
NOW = {file: text for file, text in TEXTS.items() if file not in STORIES}


def shown(text):
    """(code, whether it is complete) for all that could be commands: blocks of shell, and spans."""
    for language, block in FENCE.findall(text):
        if language == "sh":
            yield from ((line, True) for line in block.replace("\\\n", " ").splitlines())
    for span in INLINE.findall(FENCE.sub("", text)):
        yield " ".join(span.split()), False


OTHERS = {"helm", "kubectl"}
"""What they call `freshet` is a release or a namespace, but behind a `--`."""


def freshet_commands(line):
    """The arguments of each call of `freshet` in a line of shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    commands = [[]]
    for token in lexer:
        if set(token) <= set(lexer.punctuation_chars):
            commands.append([])
        else:
            commands[-1].append(token)
    for words in commands:
        if words and words[0] in OTHERS and "--" not in words:
            continue
        starts = [
            place
            for place, word in enumerate(words)
            if re.fullmatch(r"(.*/)?freshet", word)
            and (place == 0 or words[place - 1] == "--" or not words[place - 1].startswith("-"))
        ]
        if starts:
            yield words[starts[-1] + 1 :]


def parse(arguments, complete):
    """Give the arguments to the real command line, without running it or looking for files."""
    command, context, rest = main, click.Context(main, info_name="freshet"), list(arguments)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name, child, rest = command.resolve_command(context, rest)
        context = click.Context(child, info_name=name, parent=context)
        command = child
    values, left, _ = command.make_parser(context).parse_args(rest)
    if left:
        raise click.UsageError(f"unexpected: {left}")
    for parameter in command.params:
        value = values.get(parameter.name)
        if value in (None, (), click.core.UNSET):
            if parameter.required and complete:
                raise click.UsageError(f"{parameter.name} is missing")
        elif not isinstance(parameter.type, click.Path):
            parameter.type_cast_value(context, value)


def fault_of(line, complete):
    if "…" in line:
        return None
    try:
        for arguments in freshet_commands(line):
            parse(arguments, complete)
    except click.ClickException as error:
        return error.format_message()
    except ValueError:
        return None if not complete else "no shell"
    return None


@pytest.mark.parametrize("file", NOW)
def test_commands_can_be_given(file):
    calls = [(line, complete) for line, complete in shown(NOW[file]) if "freshet" in line]
    wrong = {line: fault_of(line, complete) for line, complete in calls}
    assert {line: fault for line, fault in wrong.items() if fault} == {}


def test_many_commands_are_shown():
    calls = [
        arguments
        for text in NOW.values()
        for line, complete in shown(text)
        if complete
        for arguments in freshet_commands(line)
    ]
    assert len(calls) > 40
    assert {arguments[0] for arguments in calls} >= {"run", "worker", "bandwidth", "replay"}


@pytest.mark.parametrize(
    "line",
    [
        "freshet bandwith set 10/s",
        "freshet bandwidth set",
        "freshet bandwidth set quick",
        "freshet bandwidth set 10/s --slowly",
        "freshet worker scheduler & freshet worker poet &",
        "export A=b && .venv/bin/freshet run --days",
        "kubectl -n freshet exec deploy/freshet-coordinator -- freshet bandwidth sit 10/s",
        "docker compose exec coordinator freshet statues",
        "freshet verify --minutes many",
        "freshet pages remove --hosts example.com",
        "freshet replay --pages a.csv --events b.csv",
    ],
)
def test_a_command_that_cannot_be_given_is_found(line):
    assert fault_of(line, complete=True)


@pytest.mark.parametrize(
    "line",
    [
        "freshet bandwidth set 10/s   # at once",
        "A=b .venv/bin/freshet pages import pages.csv && make run",
        "kubectl -n freshet exec deploy/freshet-coordinator -- freshet status > status.txt",
        "docker build -t freshet .",
        "helm install freshet deploy/chart -n freshet",
    ],
)
def test_a_command_that_can_be_given_is_not(line):
    assert fault_of(line, complete=True) is None


def missing_targets(text):
    known = set(re.findall(r"^([a-z][a-z-]*):", (TOP / "Makefile").read_text(), re.MULTILINE))
    named = {
        name
        for line, _ in shown(text)
        for name in re.findall(r"(?:^|&& )make ([a-z][a-z-]*)", line.strip())
    }
    return named - known


def missing_modules(text):
    named = {name for line, _ in shown(text) for name in re.findall(r"python -m ([\w.]+)", line)}
    return {name for name in named if importlib.util.find_spec(name) is None}


PODS = {"deploy/freshet-coordinator", "deploy/freshet-commands"}
"""What kubectl calls deployments of the chart."""


def missing_paths(text):
    path = r"(?<![\w./-])(?:clients|deploy|docs|migrations|services|shared|tests)/[\w./-]*\w"
    named = {name for line, _ in shown(text) for name in re.findall(path, line)}
    return {name for name in named if not (TOP / name).exists()} - PODS


def missing_settings(text):
    named = set(re.findall(r"\bFRESHET_[A-Z][A-Z_]*[A-Z]\b", text))
    return named - known_variables() - {*CLIENT_SETTINGS, FIRST, COUNT}


def missing_metrics(text):
    known = set(re.findall(r"`(freshet_\w+)`", metrics.page())) | {
        *ROLES,
        DIGEST_KEY,
        CANONICAL_KEY,
    }
    return set(re.findall(r"\bfreshet_[a-z_]+[a-z]\b", text)) - known


def missing_tests(text):
    known = {
        name
        for path in (TOP / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))
    }
    return {name for name in re.findall(r"`(test_\w+)`", text) if name not in known}


CHECKS = {
    missing_targets: "run `make nothing`",
    missing_modules: "`python -m shared.nothing`",
    missing_paths: "look into `services/nothing`",
    missing_settings: "set `FRESHET_NOTHING_SECONDS`",
    missing_metrics: "look at `freshet_nothing_total`",
    missing_tests: "held by `test_nothing_at_all`",
}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("file", NOW)
def test_what_is_named_exists(file, check):
    assert check(NOW[file]) == set()


@pytest.mark.parametrize("check", CHECKS)
def test_what_does_not_exist_is_found(check):
    assert len(check(CHECKS[check])) == 1
