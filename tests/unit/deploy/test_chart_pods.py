"""Where pods of the chart run and as whom, and what is added to them, for all and for each."""

import json

import kubernetes_validate
import pytest
from rendered_chart import (
    ALL,
    KUBERNETES,
    VALUES,
    container_of,
    of_kind,
    plain_environment,
    refusal,
    rendered,
    workers_of,
)

AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
            ]
        }
    }
}
TOLERATION = {"key": "crawl", "operator": "Exists"}
GIVEN = {
    "priorityClassName": ("steady", "first"),
    "nodeSelector": ({"pool": "all"}, {"pool": "own"}),
    "tolerations": ([TOLERATION], []),
    "affinity": (AFFINITY, {"podAntiAffinity": {}}),
    "serviceAccountName": ("crawler", "picker"),
    "automountServiceAccountToken": (True, False),
}
"""For all, and for one of them."""
VOLUME = {"name": "authority", "configMap": {"name": "collector-ca"}}
MOUNT = {"name": "authority", "mountPath": "/etc/collector", "readOnly": True}


def pods_of(documents):
    [migration] = of_kind(documents, "Job").values()
    found = workers_of(documents) | {"migration": migration}
    for document in found.values():
        for version in KUBERNETES:
            kubernetes_validate.validate(document, version, strict=True)
    return {name: document["spec"]["template"]["spec"] for name, document in found.items()}


def containers_of(pod):
    return [*pod["containers"], *pod.get("initContainers", ())]


def test_nothing_of_it_is_said_of_itself():
    for pod in pods_of(rendered((), *ALL)).values():
        assert {n: pod[n] for n in GIVEN if n in pod} == {"automountServiceAccountToken": False}


@pytest.mark.slow(0.5)
@pytest.mark.parametrize("where", ["workers.scheduler", "workers.receiver", "migration"])
@pytest.mark.parametrize("name", GIVEN)
def test_what_is_said_of_all_holds_but_where_one_says_otherwise(name, where):
    of_all, own = GIVEN[name]
    said = f"{name}={json.dumps(of_all)}", f"{where}.{name}={json.dumps(own)}"
    pods = pods_of(rendered((), *ALL, *said))
    alone = where.rpartition(".")[2]
    assert pods.pop(alone).get(name, []) == own
    assert len(pods) == len(VALUES["workers"])
    assert all(pod[name] == of_all for pod in pods.values())


@pytest.mark.slow(1)
def test_volumes_are_added_to_those_that_the_chart_has():
    said = f"extraVolumes={json.dumps([VOLUME])}", f"extraVolumeMounts={json.dumps([MOUNT])}"
    own = "workers.poller.extraVolumes=[]", "workers.poller.extraVolumeMounts=[]"
    before = pods_of(rendered((), *ALL))
    for name, pod in pods_of(rendered((), *ALL, *said, *own)).items():
        added = 0 if name == "poller" else 1
        assert pod["volumes"] == before[name]["volumes"] + [VOLUME] * added
        for container, old in zip(containers_of(pod), containers_of(before[name]), strict=True):
            assert container["volumeMounts"] == old["volumeMounts"] + [MOUNT] * added


def test_headers_for_a_backend_of_traces_come_as_a_file_to_who_sends_it_spans():
    names = ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS")
    said = [f'secrets.{name}={{"secret":"collector","key":"headers"}}' for name in names]
    for name, document in workers_of(rendered((), *ALL, *said)).items():
        given = plain_environment(container_of(document))
        files = {given[f"{one}_FILE"] for one in names if f"{one}_FILE" in given}
        mounts = {f"{m['mountPath']}/headers" for m in container_of(document)["volumeMounts"]}
        assert len(files) == (2 if name in ("ingester", "scheduler", "estimator") else 0)
        assert files <= mounts
        assert not set(names) & set(given)
    [migration] = of_kind(rendered((), *said), "Job").values()
    assert not [n for n in plain_environment(container_of(migration)) if n.startswith("OTEL")]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ('affinity={"nodeAffinty":{}}', "nodeAffinty"),
        ('priorityClassName="First of all"', "priorityClassName"),
        ('automountServiceAccountToken="yes"', "automountServiceAccountToken"),
        ('workers.scheduler.serviceAcountName="x"', "serviceAcountName"),
        ('extraVolumes=[{"name":"tmp","emptyDir":{}}]', "extraVolumes"),
        ('extraVolumes=[{"name":"empty"}]', "extraVolumes"),
        ('migration.extraVolumeMounts=[{"name":"a","mountPath":"a"}]', "mountPath"),
        ('secrets.OTEL_EXPORTER_OTLP_ENDPOINT={"secret":"a","key":"b"}', "OTEL_EXPORTER"),
    ],
)
def test_what_would_do_nothing_or_harm_is_refused(value, reason):
    assert reason in refusal(value)
