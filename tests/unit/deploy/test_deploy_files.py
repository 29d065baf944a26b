"""The files that deploy Freshet name only what exists: settings, workers, ports, metrics."""

import importlib
import json
import re
from pathlib import Path

import prometheus_client
import pytest
import yaml

from services.cli.commands.worker import WORKERS
from shared.runtime.settings import ENV_PREFIX, FILE_VARIABLE, Settings
from shared.runtime.worker import DEFAULT_PORTS

TOP = Path(__file__).parents[3]
COMPOSE = yaml.safe_load((TOP / "docker-compose.yml").read_text())
KUBERNETES = sorted((TOP / "deploy/kubernetes").glob("*.yaml"))
MANIFESTS = [
    document
    for path in KUBERNETES
    if path.name != "kustomization.yaml"
    for document in yaml.safe_load_all(path.read_text())
]
PODS = {
    m["metadata"]["name"]: m["spec"]["template"]
    for m in MANIFESTS
    if "template" in m.get("spec", {})
}
UNPREFIXED = {"KAFKA_BOOTSTRAP_SERVERS", "DATABASE_URL"}
DEPLOYED = ["docker-compose.yml", "deploy/Dockerfile", "deploy/prometheus/alerts.yml"]


@pytest.mark.parametrize("path", [*DEPLOYED, *(str(p.relative_to(TOP)) for p in KUBERNETES)])
def test_every_variable_is_a_setting(path):
    known = {f"{ENV_PREFIX}{name.upper()}" for name in Settings.model_fields} | {FILE_VARIABLE}
    text = (TOP / path).read_text().replace("FRESHET_..._PORT", "")
    assert set(re.findall(r"FRESHET_[A-Z0-9_]+", text)) <= known


def test_composes_workers_are_the_workers_on_their_ports():
    services = COMPOSE["services"]
    assert set(services) == {"kafka", "postgres", "migrate", *WORKERS}
    for name in WORKERS:
        assert services[name]["command"] == ["worker", name]
        assert f":{DEFAULT_PORTS[name]}/readyz" in services[name]["healthcheck"]["test"][-1]
        assert set(services[name]["environment"]) >= UNPREFIXED
        assert services[name]["user"] == "10001:10001"
        assert services[name]["read_only"] is True
    assert services["scheduler"]["deploy"]["replicas"] == "${SCHEDULERS:-2}"
    assert "ports" not in services["scheduler"]
    assert services["migrate"]["command"] == ["migrate"]


def test_compose_waits_for_servers_and_migrations():
    for name in WORKERS:
        waits = COMPOSE["services"][name]["depends_on"]
        assert waits["kafka"]["condition"] == "service_healthy"
        assert waits["migrate"]["condition"] == "service_completed_successfully"
    for name in ("kafka", "postgres"):
        assert COMPOSE["services"][name]["healthcheck"]["test"]
        volume = COMPOSE["services"][name]["volumes"][0].partition(":")[0]
        assert volume in COMPOSE["volumes"]


def test_compose_publishes_on_the_loopback_only():
    published = [port for s in COMPOSE["services"].values() for port in s.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_the_settings_of_compose_and_kubernetes_are_accepted():
    environment = COMPOSE["services"]["scheduler"]["environment"]
    [config] = [m["data"] for m in MANIFESTS if m["kind"] == "ConfigMap"]
    for values in (environment, config):
        fields = {
            name.removeprefix(ENV_PREFIX).lower(): re.sub(r"\$\{\w+:-(.*?)\}", r"\1", value)
            for name, value in values.items()
        }
        assert Settings(**fields).http_host == "0.0.0.0"


def test_kubernetes_runs_every_worker_and_the_migration_without_privileges():
    assert set(PODS) == {"freshet-migrate", *(f"freshet-{name}" for name in WORKERS)}
    for name, pod in PODS.items():
        spec = pod["spec"]
        [container] = spec["containers"]
        worker = name.removeprefix("freshet-")
        assert container["args"] == (["migrate"] if worker == "migrate" else ["worker", worker])
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["enableServiceLinks"] is False, "service variables would be taken for settings"
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        given = {variable["name"] for variable in container["env"]}
        assert given == {"DATABASE_URL", "FRESHET_INSTANCE"}
        if worker != "migrate":
            assert container["ports"][0]["containerPort"] == DEFAULT_PORTS[worker]
            assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
            assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"


def test_kubernetes_applies_every_manifest_and_selects_the_pods_it_means():
    listed = yaml.safe_load((TOP / "deploy/kubernetes/kustomization.yaml").read_text())
    assert sorted([*listed["resources"], "kustomization.yaml"]) == [p.name for p in KUBERNETES]
    labels = [pod["metadata"]["labels"] for pod in PODS.values()]
    for manifest in MANIFESTS:
        selector = manifest.get("spec", {}).get("selector", {})
        wanted = selector.get("matchLabels", selector)
        assert any(wanted.items() <= label.items() for label in labels)
    budgets = {m["metadata"]["name"] for m in MANIFESTS if m["kind"] == "PodDisruptionBudget"}
    assert budgets == {"freshet-ingester", "freshet-scheduler", "freshet-estimator"}


def known_metrics():
    for worker in WORKERS:
        importlib.import_module(f"services.{worker}.metrics")
    names = {"up", "process_start_time_seconds", "process_cpu_seconds_total"}
    names.add("process_resident_memory_bytes")
    for metric in prometheus_client.REGISTRY.collect():
        if metric.name.startswith("freshet_"):
            suffixes = {
                "counter": ("_total",),
                "histogram": ("_bucket", "_count", "_sum"),
            }.get(metric.type, ("",))
            names |= {metric.name + suffix for suffix in suffixes}
    return names


def used_metrics(expression):
    return set(re.findall(r"\b(?:freshet|process)_[a-z0-9_]+\b", expression))


def rules():
    [group] = yaml.safe_load((TOP / "deploy/prometheus/alerts.yml").read_text())["groups"]
    return group["rules"]


def test_alerts_are_about_metrics_that_exist_and_say_what_to_do():
    known = known_metrics()
    families = {re.sub(r"_(bucket|count|sum)$", "", name) for name in known} | known
    assert len(rules()) >= 8
    for rule in rules():
        assert used_metrics(rule["expr"]) <= known, rule["alert"]
        assert used_metrics(rule["annotations"]["action"]) <= families, rule["alert"]
        assert rule["labels"]["severity"] in {"page", "ticket"}


def test_the_dashboard_is_about_metrics_that_exist():
    board = json.loads((TOP / "deploy/grafana/freshet.json").read_text())
    known = known_metrics()
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in panels:
        for target in panel["targets"]:
            used = used_metrics(target["expr"])
            assert used, panel["title"]
            assert used <= known, panel["title"]


def test_prometheus_scrapes_every_worker_on_its_port():
    text = (TOP / "deploy/prometheus/prometheus.yml").read_text()
    jobs = yaml.safe_load(text)["scrape_configs"]
    found = {c["names"][0]: c["port"] for job in jobs for c in job["dns_sd_configs"]}
    assert found == DEFAULT_PORTS


def test_the_image_runs_as_a_plain_user_with_locked_dependencies():
    text = (TOP / "deploy/Dockerfile").read_text()
    assert "--require-hashes -r requirements.lock" in text
    assert re.search(r"^USER 10001:10001$", text, re.MULTILINE)
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    for source in " ".join(copied).split():
        assert (TOP / source).exists(), source
