"""What may be set in the chart has an effect, and what could not work is refused by helm."""

import json

import pytest
import yaml
from rendered_chart import (
    ALL,
    CHART,
    container_of,
    helm,
    of_kind,
    plain_environment,
    refusal,
    rendered,
    workers_of,
)

from shared.runtime.secret_files import SUFFIX, variables
from shared.runtime.setting_kinds import ENV_PREFIX
from shared.runtime.settings import Settings, load_settings

HEADERS = {"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"}
"""OpenTelemetry's own, which are no settings."""


@pytest.mark.parametrize(
    ("setting", "instead"),
    [
        ("FRESHET_PARTITIONS", "set shards"),
        ("FRESHET_REPLICATION_FACTOR", "set kafka.replicationFactor"),
        ("FRESHET_KAFKA_BOOTSTRAP_SERVERS", "set kafka.bootstrapServers"),
        ("FRESHET_INSTANCE", "it is the name of each pod"),
        ("FRESHET_HTTP_PORT", "the probes"),
        ("FRESHET_RECEIVER_PORT", "the service of the receiver"),
        ("FRESHET_FRONTIER_PORT", "the service of the frontier"),
    ],
)
@pytest.mark.parametrize("where", ["settings", "workers.scheduler.settings"])
def test_a_setting_that_the_chart_gives_by_itself_is_refused(where, setting, instead):
    assert f"{setting} cannot stand under settings: {instead}" in " ".join(
        refusal(f'{where}={{"{setting}":8}}').split()
    )


@pytest.mark.parametrize("where", ["settings", "workers.scheduler.settings"])
@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "10.0.0.7"])
def test_workers_that_no_probe_would_reach_are_refused(where, host):
    assert "FRESHET_HTTP_HOST must be 0.0.0.0, or ::" in " ".join(
        refusal(f'{where}={{"FRESHET_HTTP_HOST":"{host}"}}').split()
    )


def test_workers_may_listen_on_ipv6():
    documents = rendered((), 'settings={"FRESHET_HTTP_HOST":"::"}')
    for document in workers_of(documents).values():
        assert plain_environment(container_of(document))["FRESHET_HTTP_HOST"] == "::"


def test_the_schedulers_that_the_coordinators_page_asks_may_be_others():
    documents = rendered((), 'settings={"FRESHET_SCHEDULER_URLS":"http://others:6067"}')
    given = plain_environment(container_of(workers_of(documents)["coordinator"]))
    assert {v for name, v in given.items() if "SCHEDULER_URLS" in name} == {"http://others:6067"}


def test_an_annotation_of_a_pod_goes_before_the_charts_own():
    documents = rendered((), 'podAnnotations={"prometheus.io/scrape":"false","team":"search"}')
    for document in workers_of(documents).values():
        annotations = document["spec"]["template"]["metadata"]["annotations"]
        assert annotations["prometheus.io/scrape"] == "false"
        assert annotations["team"] == "search"
        port = container_of(document)["ports"][0]["containerPort"]
        assert annotations["prometheus.io/port"] == str(port)


@pytest.mark.parametrize("value", ['podAnnotations={"a":true}', 'nodeSelector={"gpu":1}'])
def test_what_kubernetes_takes_as_text_alone_is_refused_as_anything_else(value):
    assert value.partition("=")[0] in refusal(value)


@pytest.mark.parametrize(
    "value",
    [
        *("networkPolicy", "networkPolicy.enabled", "networkPolicy.fromNamespaces"),
        *("maxUnavailable", "keda.prometheus", "keda.scaleDownSeconds"),
    ],
)
def test_what_is_taken_away_and_has_no_default_is_refused(value):
    assert f"missing property '{value.rpartition('.')[2]}'" in refusal(f"{value}=null")


def test_nobody_is_let_in_where_no_namespace_is_named():
    """The schema refuses it; helm does not look at that where it is told not to."""
    unlooked = ("--skip-schema-validation", "--set-json", "networkPolicy.fromNamespaces=null")
    done = helm("template", "freshet", str(CHART), *unlooked)
    policies = of_kind(yaml.safe_load_all(done.stdout), "NetworkPolicy")
    assert policies["freshet"]["spec"]["policyTypes"] == ["Ingress"]
    # A rule without sources would be one of all sources.
    assert not policies["freshet"]["spec"]["ingress"]


def test_names_that_look_like_numbers_stay_names():
    documents = rendered(
        (),
        'secrets={"DATABASE_URL":{"secret":"123","key":"1"}}',
        'networkPolicy.fromNamespaces=["456"]',
    )
    [job] = of_kind(documents, "Job").values()
    volumes = {v["name"]: v for v in job["spec"]["template"]["spec"]["volumes"]}
    secret = volumes["database-url"]["secret"]
    assert secret["secretName"] == "123"
    assert secret["items"] == [{"key": "1", "path": "1"}]
    [rule] = of_kind(documents, "NetworkPolicy")["freshet"]["spec"]["ingress"]
    [label] = rule["from"][0]["namespaceSelector"]["matchLabels"].values()
    assert label == "456"


def test_the_database_has_one_name_among_the_secrets():
    assert "FRESHET_DATABASE_URL" in refusal(
        'secrets={"FRESHET_DATABASE_URL":{"secret":"other","key":"url"}}'
    )


def test_secrets_are_what_may_come_by_a_file_and_nothing_else():
    """Of any other a pod would die of the unknown setting."""
    by_file = {
        name.removesuffix(SUFFIX)
        for name in variables(ENV_PREFIX, Settings.model_fields)
        if name != f"FRESHET_DATABASE_URL{SUFFIX}"  # it has one name here
    }
    schema = json.loads((CHART / "values.schema.json").read_text())
    known = schema["definitions"]["secrets"]["propertyNames"]["enum"]
    assert len(known) == len(set(known))
    assert set(known) == by_file | HEADERS
    assert "FRESHET_TICK_SECONDS" in refusal(
        'workers.scheduler.secrets={"FRESHET_TICK_SECONDS":{"secret":"a","key":"b"}}'
    )


def test_a_kafka_user_and_streams_with_passwords_come_by_files(monkeypatch, tmp_path):
    streams = [{"url": "https://u:p@example.com/", "source": "a", "format": "wikimedia"}]
    given = {
        "FRESHET_KAFKA_SASL_USERNAME": "crawler",
        "FRESHET_KAFKA_SASL_PASSWORD": "hidden",
        "FRESHET_POLLER_STREAMS": json.dumps(streams),
    }
    changes = [f'secrets.{name}={{"secret":"all","key":"of-it"}}' for name in given]
    documents = rendered(
        (), *ALL, *changes, 'settings={"FRESHET_KAFKA_SECURITY_PROTOCOL":"SASL_SSL"}'
    )
    environment = plain_environment(container_of(workers_of(documents)["poller"]))
    for name, value in given.items():
        (tmp_path / name).write_text(f"{value}\n")
        assert environment[f"{name}{SUFFIX}"].endswith("/of-it")
        monkeypatch.setenv(f"{name}{SUFFIX}", str(tmp_path / name))
    settings = load_settings(kafka_security_protocol="SASL_SSL")
    assert settings.kafka_sasl_username == "crawler"
    assert list(settings.poller_streams) == streams


def test_the_databases_certificates_come_to_who_uses_it():
    documents = rendered((), *ALL, 'database.tls={"secret":"postgres","clientCertificate":true}')
    [migration] = of_kind(documents, "Job").values()
    for name, document in [*workers_of(documents).items(), ("migration", migration)]:
        pod = document["spec"]["template"]["spec"]
        volumes = {v["name"]: v.get("secret", {}).get("secretName") for v in pod["volumes"]}
        for container in [*pod["containers"], *pod.get("initContainers", ())]:
            given = plain_environment(container)
            files = {given.get(n) for n in ("PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY")}
            if name == "ingester":
                assert files == {None}
                continue
            mounts = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
            folder = mounts["database-tls"]
            assert files == {f"{folder}/{file}" for file in ("ca.crt", "tls.crt", "tls.key")}
            assert volumes["database-tls"] == "postgres"
    alone = plain_environment(
        container_of(workers_of(rendered((), 'database.tls.secret="postgres"'))["scheduler"])
    )
    assert "PGSSLROOTCERT" in alone
    assert "PGSSLKEY" not in alone
    assert not [
        n
        for n in plain_environment(container_of(workers_of(rendered(()))["scheduler"]))
        if n.startswith("PG")
    ]


def test_nodes_can_be_drained_while_no_pod_is_ready():
    budgets = of_kind(rendered((), *ALL), "PodDisruptionBudget").values()
    assert {b["spec"]["unhealthyPodEvictionPolicy"] for b in budgets} == {"AlwaysAllow"}
