"""What may be set in the chart has an effect, and what could not work is refused by helm."""

import pytest
from rendered_chart import (
    ALL,
    container_of,
    of_kind,
    plain_environment,
    refusal,
    rendered,
    workers_of,
)


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
