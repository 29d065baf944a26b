"""Pages that are made from the code have all of it, and read well."""

import re

import click
import pytest

from deploy.docs import commands, contract, metrics, settings
from deploy.docs.tables import table
from services.cli.main import COMMANDS, main
from shared.contracts.asyncapi import document
from shared.contracts.described import field_descriptions
from shared.contracts.messages import CrawlRequest
from shared.contracts.topics import TOPICS
from shared.runtime.setting_kinds import ENV_PREFIX
from shared.runtime.settings import Settings


def test_the_contract_has_every_topic_and_every_field():
    page = contract.page()
    for topic in TOPICS:
        assert f"| [`{topic.name}`](#" in page
    schemas = document()["components"]["schemas"]
    for name, schema in schemas.items():
        [section] = re.findall(rf"^### {name}\n(.*?)(?=^### |\Z)", page, re.DOTALL | re.MULTILINE)
        assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == set(
            schema["properties"]
        )
    assert "| `deadline_at` | number, ≥ 0, ≤ 1e+11 | yes | Without an outcome by then," in page


def test_links_within_the_contract_lead_to_its_sections():
    page = contract.page()
    sections = {name.lower() for name in re.findall(r"^#+ (\S+)$", page, re.MULTILINE)}
    linked = set(re.findall(r"\]\(#([\w-]+)\)", page))
    assert len(linked) > len(TOPICS)
    assert linked <= sections


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "integer", "minimum": 0, "maximum": 999}, "integer, ≥ 0, ≤ 999"),
        ({"type": "number", "exclusiveMinimum": 0}, "number, > 0"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string or null"),
        ({"enum": ["a", "b"]}, "`a`, `b`"),
        ({"type": "array", "items": {"$ref": "#/x/Part"}}, "list of [Part](#part)"),
        (
            {"type": "array", "items": {"type": "string"}, "maxItems": 3},
            "list of string, at most 3",
        ),
    ],
)
def test_types_are_told_in_a_few_words(schema, words):
    assert contract.type_of(schema) == words


def test_settings_are_all_there_with_what_holds_without_them():
    page = settings.page()
    rows = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert len(rows) == len(Settings.model_fields)
    for name, field in Settings.model_fields.items():
        variable = name.upper() if field.validation_alias else f"{ENV_PREFIX}{name.upper()}"
        assert variable in rows
    assert "| `FRESHET_STALL_SECONDS` | number | `60` | A worker whose loop or batch" in page
    assert "| `FRESHET_KAFKA_SASL_PASSWORD` | secret |  |  |" in page


def test_commands_are_all_there():
    page = commands.page()
    for name in COMMANDS:
        assert f"\n## freshet {name}\n" in page
    assert "\n### freshet dead-letters replay\n" in page
    assert set(re.findall(r"^## freshet (\S+)$", page, re.MULTILINE)) == set(
        main.list_commands(click.Context(main))
    )


def test_metrics_are_those_that_the_workers_show():
    page = metrics.page()
    assert "| `freshet_dead_letters_total` | counter | `stage`, `topic` |" in page
    assert "| `freshet_loop_lag_seconds` | histogram |" in page
    assert re.findall(r"^## (.+)$", page, re.MULTILINE)[0] == "Every worker"
    assert len(re.findall(r"^\| `freshet_", page, re.MULTILINE)) > 30


def test_cells_cannot_break_a_table():
    assert table(("a", "b"), [("1 | 2", "x\ny")]) == "| a | b |\n| --- | --- |\n| 1 \\| 2 | x y |\n"


def test_descriptions_are_the_docstrings_beneath_the_fields():
    described = field_descriptions(CrawlRequest)
    assert described["deadline_at"] == (
        "Without an outcome by then, the crawl counts as failed, and is tried again later."
    )
    assert "url" not in described


def test_a_class_without_source_has_no_descriptions():
    namespace = {"__name__": "nowhere"}
    exec("class Made:\n    x: int\n    'What it is.'\n", namespace)
    assert field_descriptions(namespace["Made"]) == {}
