"""The chart's pod for operators' commands, and workers that are stopped."""

import json

import kubernetes_validate
import pytest
from rendered_chart import (
    ALL,
    KUBERNETES,
    TOP,
    container_of,
    of_kind,
    plain_environment,
    refusal,
    rendered,
    workers_of,
)

from shared.runtime.settings import known_variables
from shared.runtime.worker import DEFAULT_PORTS

ON = "commands.enabled=true"
OPERATOR = 'commands.secrets={"DATABASE_URL":{"secret":"operator","key":"url"}}'


def commands_of(documents):
    return of_kind(documents, "Deployment")["freshet-commands"]


def test_it_is_there_where_somebody_wants_it_and_does_nothing_by_itself():
    assert "freshet-commands" not in of_kind(rendered((), *ALL), "Deployment", "NetworkPolicy")
    documents = rendered((), *ALL, ON)
    for document in (
        commands_of(documents),
        of_kind(documents, "NetworkPolicy")["freshet-commands"],
    ):
        for version in KUBERNETES:
            kubernetes_validate.validate(document, version, strict=True)
    container = container_of(commands_of(documents))
    assert container["command"] == ["sleep", "infinity"]
    assert not {"args", "ports", "livenessProbe"} & set(container)
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_files_lie_where_commands_begin():
    pod = commands_of(rendered((), *ALL, ON))["spec"]["template"]["spec"]
    [container] = pod["containers"]
    [mount] = [m for m in container["volumeMounts"] if m["mountPath"] == container["workingDir"]]
    assert not mount.get("readOnly")
    [volume] = [v for v in pod["volumes"] if v["name"] == mount["name"]]
    assert volume["emptyDir"] == {"sizeLimit": "1Gi"}


def test_commands_come_as_a_user_of_their_own():
    documents = rendered((), *ALL, ON, OPERATOR)

    def secrets(document):
        volumes = document["spec"]["template"]["spec"]["volumes"]
        return {v["secret"]["secretName"] for v in volumes if "secret" in v}

    assert secrets(commands_of(documents)) == {"operator"}
    others = [d for n, d in workers_of(documents).items() if n not in ("commands", "ingester")]
    assert all(secrets(document) == {"freshet-database"} for document in others)


def test_they_find_coordinators_and_schedulers_and_may_ask_them():
    documents = rendered((), *ALL, ON)
    environment = plain_environment(container_of(commands_of(documents)))
    services = of_kind(documents, "Service")
    for name, variable in (
        ("coordinator", "COORDINATOR_URL"),
        ("scheduler", "FRESHET_SCHEDULER_URLS"),
    ):
        assert environment.pop(variable) == f"http://freshet-{name}:{DEFAULT_PORTS[name]}"
        assert f"freshet-{name}" in services
    unprefixed = {"KAFKA_BOOTSTRAP_SERVERS", "DATABASE_URL_FILE"}
    assert set(environment) <= known_variables() | unprefixed
    spec = of_kind(documents, "NetworkPolicy")["freshet-commands"]["spec"]
    [expression] = spec["podSelector"]["matchExpressions"]
    assert set(expression["values"]) == {"coordinator", "scheduler"}
    [rule] = spec["ingress"]
    [source] = rule["from"]
    labels = commands_of(documents)["spec"]["template"]["metadata"]["labels"]
    assert source["podSelector"]["matchLabels"].items() <= labels.items()
    assert rule["ports"] == [{"port": "http"}]


def test_a_volume_for_large_files_is_added():
    volume = {"name": "files", "persistentVolumeClaim": {"claimName": "files"}}
    mount = {"name": "files", "mountPath": "/files"}
    pod = commands_of(
        rendered(
            (),
            ON,
            f"commands.extraVolumes={json.dumps([volume])}",
            f"commands.extraVolumeMounts={json.dumps([mount])}",
        )
    )["spec"]["template"]["spec"]
    assert volume in pod["volumes"]
    assert mount in pod["containers"][0]["volumeMounts"]
    assert "replicas" in refusal("commands.replicas=2")


@pytest.mark.parametrize("name", ["estimator", "scheduler", "coordinator"])
def test_a_worker_may_be_stopped_by_its_values(name):
    worker = workers_of(rendered((), f"workers.{name}.replicas=0"))[name]
    assert worker["spec"]["replicas"] == 0


def test_the_names_by_which_workers_are_stopped_are_those_that_there_are():
    text = (TOP / "deploy/chart/README.md").read_text()
    documents = rendered((), *ALL)
    for kind, names in (
        ("StatefulSet", ("ingester", "scheduler", "estimator", "discoverer")),
        ("Deployment", ("coordinator", "receiver", "poller", "frontier")),
    ):
        assert set(of_kind(documents, kind)) == {f"freshet-{name}" for name in names}
        shown = [f"`{kind.lower()}/freshet-{names[0]}`", *(f"`-{name}`" for name in names[1:])]
        assert all(name in text for name in shown)
    scaled = of_kind(rendered(("large.yaml",)), "ScaledObject")
    assert "freshet-estimator" in scaled
    assert "scaledobject/freshet-estimator" in text


def test_values_of_a_release_of_before_have_none_of_it():
    assert rendered((), "commands=null")
