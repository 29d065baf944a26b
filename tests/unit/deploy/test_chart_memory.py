"""The examples' workers have the memory that `freshet plan` counts for as many pages."""

import re

import pytest
import yaml
from rendered_chart import CHART, EXAMPLES, VALUES

from services.plan.coefficients import read_measured
from services.plan.servers import MEMORY_ROOM
from services.plan.sizing import PAGES_A_HOST, VIEW_BYTES, VIEWS
from shared.runtime.settings import Settings

COST = {name: coefficient.value for name, coefficient in read_measured().items()}
RESIDENT = Settings.model_fields["estimator_resident_pages"].default
PAGES = {"small.yaml": 1e6, "large.yaml": 1e8}
"""As the examples' first lines say."""


def bytes_of(text):
    number, unit = re.fullmatch(r"(\d+)(Mi|Gi)", text).groups()
    return int(number) * 1024 ** {"Mi": 2, "Gi": 3}[unit]


def limit(given, name):
    resources = (
        given["workers"].get(name, {}).get("resources") or VALUES["workers"][name]["resources"]
    )
    return bytes_of(resources["limits"]["memory"])


def serving(worker):
    """Replicas that are there at least, while one of several is away."""
    scaled = worker.get("autoscaling", {})
    replicas = scaled["min"] if scaled.get("enabled") else worker["replicas"]
    return max(replicas - 1, 1)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_examples_limits_hold_its_pages(example):
    given = yaml.safe_load((CHART / "examples" / example).read_text())
    pages = PAGES[example]
    part = pages / serving(given["workers"]["scheduler"])
    needed = COST["scheduler_base_bytes"] + part * COST["scheduler_page_bytes"]
    assert limit(given, "scheduler") >= MEMORY_ROOM * needed
    part = pages / serving(given["workers"]["estimator"])
    needed = (
        COST["estimator_base_bytes"]
        + min(part, RESIDENT) * COST["estimator_page_bytes"]
        + part / PAGES_A_HOST * COST["estimator_host_bytes"]
    )
    assert limit(given, "estimator") >= MEMORY_ROOM * needed


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_coordinator_has_room_for_who_looks_at_its_page(example):
    given = yaml.safe_load((CHART / "examples" / example).read_text())
    needed = COST["coordinator_base_bytes"] + VIEWS * VIEW_BYTES
    assert limit(given, "coordinator") >= MEMORY_ROOM * needed
