"""The chart as helm renders it, for its tests."""

import functools
import subprocess
from pathlib import Path

import yaml
from tools import need_tool

TOP = Path(__file__).parents[3]
CHART = TOP / "deploy/chart"
EXAMPLES = sorted(path.name for path in (CHART / "examples").glob("*.yaml"))
GIVEN = [(), *((example,) for example in EXAMPLES)]
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
ALL = [f"workers.{name}.enabled=true" for name, w in VALUES["workers"].items() if not w["enabled"]]
"""Switches on what is off by itself."""
KUBERNETES = ("1.29", "1.37")
"""The oldest and the newest whose schemas the manifests are held against."""


def helm(*arguments):
    return subprocess.run(
        [need_tool("helm"), *arguments, "--kube-version", KUBERNETES[0]],
        capture_output=True,
        text=True,
        check=False,
    )


@functools.cache
def rendered(examples, *settings):
    """All documents, of the chart with some examples' values and `--set` settings."""
    files = [part for name in examples for part in ("-f", str(CHART / "examples" / name))]
    changes = [part for setting in settings for part in ("--set-json", setting)]
    done = helm("template", "freshet", str(CHART), "-n", "crawling", *files, *changes)
    assert done.returncode == 0, done.stderr
    # In C: most of what these tests took was the reading.
    documents = yaml.load_all(done.stdout, Loader=yaml.CSafeLoader)
    return [document for document in documents if document]


def refusal(*settings):
    changes = [part for setting in settings for part in ("--set-json", setting)]
    done = helm("template", "freshet", str(CHART), *changes)
    assert done.returncode != 0
    return done.stderr


def of_kind(documents, *kinds):
    return {d["metadata"]["name"]: d for d in documents if d["kind"] in kinds}


def workers_of(documents):
    found = of_kind(documents, "StatefulSet", "Deployment")
    return {name.removeprefix("freshet-"): document for name, document in found.items()}


def container_of(document):
    [container] = document["spec"]["template"]["spec"]["containers"]
    return container


def plain_environment(container):
    return {v["name"]: v["value"] for v in container["env"] if "value" in v}
