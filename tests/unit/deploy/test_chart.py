"""The chart makes what Kubernetes takes, names only what exists, and keeps its promises."""

import json
import re
import tomllib
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml
from rendered_chart import (
    ALL,
    CHART,
    GIVEN,
    KUBERNETES,
    TOP,
    VALUES,
    container_of,
    helm,
    of_kind,
    plain_environment,
    refusal,
    rendered,
    workers_of,
)

from services.cli.commands.worker import WORKERS
from shared.runtime import metrics
from shared.runtime.settings import Settings, known_variables, load_settings
from shared.runtime.worker import DEFAULT_PORTS, STOP_LIMIT_SECONDS

CRDS = Path(__file__).parent / "crds"


@pytest.mark.parametrize("examples", GIVEN)
def test_helm_finds_nothing_to_complain_about(examples):
    files = [part for name in examples for part in ("-f", str(CHART / "examples" / name))]
    done = helm("lint", "--strict", str(CHART), *files)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow(1)
@pytest.mark.parametrize("examples", GIVEN)
def test_kubernetes_and_the_operators_take_every_manifest(examples):
    for document in rendered(examples, *ALL):
        schema = CRDS / f"{document['kind'].lower()}.json"
        if schema.exists():
            jsonschema.validate(document, json.loads(schema.read_text()))
            continue
        for version in KUBERNETES:
            kubernetes_validate.validate(document, version, strict=True)


def test_a_field_that_kubernetes_does_not_know_is_found():
    worker = json.loads(json.dumps(workers_of(rendered((), *ALL))["scheduler"]))
    worker["spec"]["replica"] = 2
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(worker, KUBERNETES[1], strict=True)


def test_every_worker_runs_on_its_port_as_a_plain_user_who_can_write_nothing():
    workers = workers_of(rendered((), *ALL))
    assert set(workers) == set(WORKERS)
    [migration] = of_kind(rendered((), *ALL), "Job").values()
    for name, document in [*workers.items(), ("migration", migration)]:
        pod = document["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        assert pod["enableServiceLinks"] is False, "service variables would be taken for settings"
        for container in [*pod["containers"], *pod.get("initContainers", ())]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]
        if name in WORKERS:
            container = container_of(document)
            assert container["args"] == ["worker", name]
            assert container["ports"][0] == {"name": "http", "containerPort": DEFAULT_PORTS[name]}
            assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
            assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"


@pytest.mark.parametrize("examples", GIVEN)
def test_the_settings_are_those_that_there_are_and_are_accepted(examples, monkeypatch, tmp_path):
    for document in [*workers_of(rendered(examples, *ALL)).values()]:
        environment = plain_environment(container_of(document))
        unprefixed = {"KAFKA_BOOTSTRAP_SERVERS", "DATABASE_URL_FILE"}
        assert set(environment) <= known_variables() | unprefixed
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                if name.endswith("_FILE"):
                    (tmp_path / name).write_text('{"cms": "s"}' if "KEYS" in name else "host=db")
                    value = str(tmp_path / name)  # noqa: PLW2901 - where the pod's volume is
                patch.setenv(name, value)
            settings = load_settings()
        assert settings.http_host == "0.0.0.0"
        assert settings.partitions == (256 if "large.yaml" in examples else settings.partitions)


def test_numbers_lists_and_objects_come_as_settings_read_them():
    scheduler = workers_of(
        rendered(
            (),
            'settings={"FRESHET_SIGNALS_PER_SOURCE_PER_SECOND":2000000,'
            '"FRESHET_SIGNAL_SOURCES":["a","b"],"FRESHET_WORK_CONSERVING":false}',
            'workers.scheduler.settings={"FRESHET_TICK_SECONDS":0.1}',
        )
    )["scheduler"]
    environment = plain_environment(container_of(scheduler))
    assert environment["FRESHET_SIGNALS_PER_SOURCE_PER_SECOND"] == "2000000"
    assert environment["FRESHET_SIGNAL_SOURCES"] == '["a","b"]'
    assert environment["FRESHET_WORK_CONSERVING"] == "false"
    assert environment["FRESHET_TICK_SECONDS"] == "0.1"


def test_secrets_come_as_files_to_who_needs_them():
    documents = rendered(("large.yaml",), *ALL)
    workers = workers_of(documents)
    [migration] = of_kind(documents, "Job").values()
    for name, document in [*workers.items(), ("migration", migration)]:
        pod = document["spec"]["template"]["spec"]
        for container in [*pod["containers"], *pod.get("initContainers", ())]:
            given = plain_environment(container)
            assert ("DATABASE_URL_FILE" in given) == (name != "ingester")
            assert ("FRESHET_VIEW_DATABASE_URL_FILE" in given) == (name == "coordinator")
            mounts = {m["mountPath"]: m["name"] for m in container["volumeMounts"]}
            volumes = {v["name"]: v for v in pod["volumes"]}
            for variable in [v for v in given if v.endswith("_FILE")]:
                folder, _, key = given[variable].rpartition("/")
                secret = volumes[mounts[folder]]["secret"]
                assert secret["items"] == [{"key": key, "path": key}]
        kinds = {source for v in container["env"] for source in v.get("valueFrom", {})}
        assert kinds == {"fieldRef"}, "no secret stands in an environment"


def test_each_worker_may_log_in_as_a_user_of_its_own_and_the_migration_as_the_owner():
    """A secret under a worker goes before that of all, also of several databases."""
    own = '{"FRESHET_DATABASES":{"secret":"of-%s","key":"urls"}}'
    documents = rendered(
        (),
        *ALL,
        'secrets.FRESHET_DATABASES={"secret":"of-all","key":"url"}',
        f"workers.scheduler.secrets={own % 'scheduler'}",
        f"workers.ingester.secrets={own % 'ingester'}",
        f"migration.secrets={own % 'owner'}",
    )
    [migration] = of_kind(documents, "Job").values()
    for name, document in [*workers_of(documents).items(), ("migration", migration)]:
        pod = document["spec"]["template"]["spec"]
        secrets = {v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v}
        given = {"scheduler": {"of-scheduler"}, "migration": {"of-owner"}, "ingester": set()}
        assert secrets == given.get(name, {"of-all"})
        key = "urls" if name in given else "url"
        for container in [*pod["containers"], *pod.get("initContainers", ())]:
            environment = plain_environment(container)
            assert "DATABASE_URL_FILE" not in environment
            if secrets:
                path = f"/run/freshet/freshet-databases/{key}"
                assert environment["FRESHET_DATABASES_FILE"] == path
    assert "additional properties" in refusal(
        'workers.scheduler.secrets={"DATABASE_URL":{"s":"a"}}'
    )


@pytest.mark.parametrize("who", ["workers.estimator", "workers.poller", "migration"])
def test_a_database_of_its_own_that_would_not_count_is_refused(who):
    several = 'secrets.FRESHET_DATABASES={"secret":"of-all","key":"url"}'
    own = 'secrets={"DATABASE_URL":{"secret":"own","key":"url"}}'
    assert "has a DATABASE_URL of its own beside" in refusal(*ALL, several, f"{who}.{own}")
    assert rendered((), *ALL, several, f"workers.ingester.{own}")  # it uses none


def test_classes_shares_and_objectives_come_from_values(monkeypatch):
    given = {
        "FRESHET_CLASSES": {"news": {"weight": 2}, "partner": {"share": 0.3}},
        "FRESHET_REASON_SHARES": {"new": 0.2, "urgent": 0.1},
        "FRESHET_OBJECTIVES": {"news.example": "harmonic"},
        "FRESHET_GROUP_CRAWLS_PER_SECOND": 0.5,
    }
    for document in workers_of(rendered((), *ALL, f"settings={json.dumps(given)}")).values():
        environment = plain_environment(container_of(document))
        with monkeypatch.context() as patch:
            for name in given:
                patch.setenv(name, environment[name])
            settings = load_settings()
        assert settings.classes["news"].weight == 2
        assert settings.classes["partner"].share == 0.3
        assert settings.reason_shares == given["FRESHET_REASON_SHARES"]
        assert settings.objectives == given["FRESHET_OBJECTIVES"]
        assert settings.group_crawls_per_second == 0.5


def test_a_worker_keeps_its_name_however_it_is_restarted_or_scaled():
    for name, document in workers_of(rendered(("large.yaml",), *ALL)).items():
        [instance] = [v for v in container_of(document)["env"] if v["name"] == "FRESHET_INSTANCE"]
        assert instance["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
        # Members of a group are those that lag can scale.
        member = "autoscaling" in VALUES["workers"][name]
        assert document["kind"] == ("StatefulSet" if member else "Deployment")


def test_replicas_follow_the_lag_that_workers_measure():
    documents = rendered(("large.yaml",), *ALL)
    workers = workers_of(documents)
    scaled = of_kind(documents, "ScaledObject")
    assert set(scaled) == {"freshet-ingester", "freshet-estimator"}
    for name, document in scaled.items():
        target = document["spec"]["scaleTargetRef"]
        worker = workers[target["name"].removeprefix("freshet-")]
        assert (worker["kind"], worker["apiVersion"]) == (target["kind"], target["apiVersion"])
        assert "replicas" not in worker["spec"], "an upgrade would undo what KEDA has set"
        [trigger] = document["spec"]["triggers"]
        query = trigger["metadata"]["query"]
        [family] = metrics.CONSUMER_LAG.collect()
        assert query == f'sum({family.name}{{job="{name}", namespace="crawling"}})'
        # Of workers that say nothing, as they wait for a server, the sum is nothing, and no 0.
        assert trigger["metadata"]["ignoreNullValues"] == "false"
    assert workers["scheduler"]["spec"]["replicas"] == 16


def test_disruption_budgets_services_and_spreads_select_the_pods_they_mean():
    documents = rendered(("large.yaml",), *ALL)
    pods = {
        n: d["spec"]["template"]["metadata"]["labels"] for n, d in workers_of(documents).items()
    }

    def selected(labels):
        return {name for name, given in pods.items() if labels.items() <= given.items()}

    budgets = of_kind(documents, "PodDisruptionBudget")
    services = of_kind(documents, "Service")
    for name, document in workers_of(documents).items():
        full = f"freshet-{name}"
        assert selected(document["spec"]["selector"]["matchLabels"]) == {name}
        assert selected(budgets[full]["spec"]["selector"]["matchLabels"]) == {name}
        assert selected(services[full]["spec"]["selector"]) == {name}
        for spread in document["spec"]["template"]["spec"]["topologySpreadConstraints"]:
            assert selected(spread["labelSelector"]["matchLabels"]) == {name}
    for kind in ("NetworkPolicy", "PodMonitor"):
        spec = of_kind(documents, kind)["freshet"]["spec"]
        selector = spec.get("podSelector") or spec["selector"]
        assert selected(selector["matchLabels"]) == set(pods)


def test_strangers_may_send_pings_and_nothing_else():
    documents = rendered((), *ALL)
    opened = {
        name: d
        for name, d in of_kind(documents, "NetworkPolicy").items()
        if name not in ("freshet", "freshet-views")
    }
    assert set(opened) == {"freshet-frontier", "freshet-receiver"}
    assert opened["freshet-frontier"]["spec"]["ingress"] == [
        {"from": [{"podSelector": {}}], "ports": [{"port": "fleet"}]}
    ]
    [rule] = opened["freshet-receiver"]["spec"]["ingress"]
    assert rule == {"ports": [{"port": "pings"}]}
    ports = container_of(workers_of(documents)["receiver"])["ports"]
    default = Settings.model_fields["receiver_port"].default
    assert {"name": "pings", "containerPort": default} in ports


def test_a_pod_that_goes_is_open_until_those_who_call_it_know():
    closing_at_once = set(WORKERS)
    for name, document in workers_of(rendered((), *ALL)).items():
        pod, container = document["spec"]["template"]["spec"], container_of(document)
        if "lifecycle" in container:
            closing_at_once.remove(name)
            wait, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
            assert wait == "sleep"
            assert int(seconds) + STOP_LIMIT_SECONDS < pod["terminationGracePeriodSeconds"]
    assert closing_at_once == set(WORKERS) - {"receiver", "frontier"}


def test_the_coordinators_page_may_ask_every_scheduler():
    documents = rendered((), *ALL)
    workers = workers_of(documents)
    asked = {
        name: plain_environment(container_of(document)).get("FRESHET_SCHEDULER_URLS")
        for name, document in workers.items()
    }
    service = of_kind(documents, "Service")["freshet-scheduler"]
    [port] = service["spec"]["ports"]
    assert service["spec"]["clusterIP"] == "None", "its name stands for all pods"
    url = f"http://freshet-scheduler:{port['port']}"
    assert {name for name, value in asked.items() if value} == {"coordinator"}
    assert asked["coordinator"] == url
    spec = of_kind(documents, "NetworkPolicy")["freshet-views"]["spec"]
    [rule] = spec["ingress"]
    labels = {n: d["spec"]["template"]["metadata"]["labels"] for n, d in workers.items()}
    [asking] = [source["podSelector"]["matchLabels"].items() for source in rule["from"]]
    assert [n for n, given in labels.items() if asking <= given.items()] == ["coordinator"]
    opened = spec["podSelector"]["matchLabels"].items()
    assert [n for n, given in labels.items() if opened <= given.items()] == ["scheduler"]
    assert rule["ports"] == [{"port": "http"}]


def test_the_schema_and_the_topics_are_there_before_a_worker_is_changed():
    [job] = of_kind(rendered((), *ALL), "Job").values()
    # Not before a rollback: an older version refuses the newer schema, and needs no other.
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    pod = job["spec"]["template"]["spec"]
    assert [c["args"] for c in pod["initContainers"]] == [["migrate"]]
    assert [c["args"] for c in pod["containers"]] == [["topics", "ensure", "--fix"]]
    # A pod that is restarted in place is deleted at the last failure, and its log with it.
    assert pod["restartPolicy"] == "Never"
    # A hook is made before the release's own objects: it may lean on none of them.
    assert not of_kind(rendered((), *ALL), "ConfigMap", "Secret")


def test_prometheus_knows_workers_by_the_names_that_the_rules_have():
    documents = rendered(("large.yaml",), *ALL)
    [monitor] = of_kind(documents, "PodMonitor").values()
    [endpoint] = monitor["spec"]["podMetricsEndpoints"]
    [relabeling] = endpoint["relabelings"]
    assert relabeling["targetLabel"] == "job"
    [label] = relabeling["sourceLabels"]
    jobs = set()
    for document in workers_of(documents).values():
        labels = document["spec"]["template"]["metadata"]["labels"]
        as_meta = {
            f"__meta_kubernetes_pod_label_{re.sub(r'[./-]', '_', k)}": v for k, v in labels.items()
        }
        jobs.add(relabeling["replacement"].replace("$1", as_meta[label]))
    scraped = yaml.safe_load((TOP / "deploy/prometheus/prometheus.yml").read_text())
    assert jobs == {job["job_name"] for job in scraped["scrape_configs"]}
    [board] = of_kind(documents, "ConfigMap").values()
    for given, file in (("freshet", "freshet"), ("freshet-workers", "workers")):
        board_file = TOP / f"deploy/grafana/{file}.json"
        assert json.loads(board["data"][f"{given}.json"]) == json.loads(board_file.read_text())


def test_what_is_switched_off_leaves_nothing():
    documents = rendered(("large.yaml",), "workers.ingester.enabled=false")
    assert not [d for d in documents if "ingester" in d["metadata"]["name"]]
    off = rendered((), "migration.enabled=false", "networkPolicy.enabled=false")
    assert not of_kind(off, "Job", "NetworkPolicy", "PodMonitor", "PrometheusRule", "ScaledObject")


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("shard=8", "shard"),
        ("shards=0", "minimum"),
        ("workers.scheduler.replica=3", "replica"),
        ('settings={"FRESHET_KAFKA_SASL_PASSWORD":"x"}', "FRESHET_KAFKA_SASL_PASSWORD"),
        ('settings={"PATH":"x"}', "PATH"),
        ('kafka.bootstrapServers="kafka"', "pattern"),
        ("workers.coordinator.autoscaling.enabled=true", "autoscaling"),
        ('workers.estimator.autoscaling={"enabled":true,"max":65}', "more workers than shards"),
        ('workers.estimator.autoscaling={"enabled":true,"max":1}', "max is below min"),
    ],
)
def test_values_that_mean_nothing_are_refused(setting, reason):
    assert reason in refusal(setting)


def test_the_values_fit_their_schema():
    """The same as helm looks at, where there is no helm."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.validate(VALUES, schema)
    assert set(VALUES["workers"]) == set(WORKERS)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(VALUES | {"replicas": 2}, schema)


def test_the_chart_is_of_the_projects_version_and_shards():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]["version"]
    assert chart["version"] == chart["appVersion"] == version
    assert VALUES["shards"] == Settings.model_fields["partitions"].default
