"""The file of coefficients: all of them, each with who measured it; what is wrong is refused."""

import shlex

import click
import pytest

from services.cli.main import main
from services.plan.coefficients import KNOWN, NotMeasured, read_measured, write_measured
from shared.contracts.topics import TOPICS

SHIPPED = read_measured()


def test_all_coefficients_are_shipped_and_say_how_they_were_measured():
    assert list(SHIPPED) == list(KNOWN)
    for coefficient in SHIPPED.values():
        described = coefficient.described()
        assert all(described[name] for name in ("what", "command", "date", "machine", "commit"))


def test_they_name_commands_that_there_are():
    group = main.get_command(click.Context(main), "bench")
    for coefficient in SHIPPED.values():
        program, bench, benchmark, *options = shlex.split(coefficient.run.command)
        assert (program, bench) == ("freshet", "bench")
        command = group.get_command(click.Context(group), benchmark)
        known = {option for parameter in command.params for option in parameter.opts}
        assert {option for option in options if option.startswith("--")} <= known


def test_messages_are_those_of_the_contract():
    names = {topic.name.replace("-", "_") for topic in TOPICS}
    of_topics = {name.partition("_records_a_")[0] for name in KNOWN if "_records_a_" in name}
    assert of_topics <= names
    assert {f"{name}_bytes" for name in of_topics} <= set(KNOWN)


def test_what_is_written_is_read(tmp_path):
    file = tmp_path / "measured.yml"
    write_measured(file, SHIPPED)
    assert read_measured(file) == SHIPPED
    part = {name: SHIPPED[name] for name in list(SHIPPED)[:3]}
    write_measured(file, part)
    assert read_measured(file) == part


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("coefficients: {}", "runs"),
        ("runs: {}\ncoefficients: {no_such: {value: 1, run: a}}", "no_such is no coefficient"),
        ("runs: {}\ncoefficients: {handover_seconds: {value: 1, run: a}}", "not among the runs"),
        ("runs: {}\ncoefficients: {handover_seconds: {value: -1, run: a}}", "handover_seconds is"),
        ("runs: {}\ncoefficients: {handover_seconds: {value: .inf, run: a}}", "is inf"),
        ("runs: {}\ncoefficients: {handover_seconds: {value: 1}}", "run"),
        ("runs: {}\ncoefficients: {handover_seconds: {value: 1, run: a, unit: s}}", "unit"),
        ("\tnothing", "measured.yml"),
    ],
)
def test_what_is_no_file_of_coefficients_is_refused(tmp_path, text, why):
    file = tmp_path / "measured.yml"
    file.write_text(text)
    with pytest.raises(NotMeasured, match=why):
        read_measured(file)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(NotMeasured, match=r"gone\.yml"):
        read_measured(tmp_path / "gone.yml")
