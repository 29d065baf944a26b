"""The files that deploy Freshet name only what exists: settings, workers, ports, metrics."""

import importlib
import json
import re
from pathlib import Path

import prometheus_client
import pytest
import yaml

from deploy.docs import dashboard
from services.cli.commands.worker import WORKERS
from shared.runtime.setting_kinds import ENV_PREFIX
from shared.runtime.settings import Settings, known_variables
from shared.runtime.worker import DEFAULT_PORTS

TOP = Path(__file__).parents[3]
COMPOSE = yaml.safe_load((TOP / "docker-compose.yml").read_text())
UNPREFIXED = {"KAFKA_BOOTSTRAP_SERVERS", "DATABASE_URL"}
DEPLOYED = ["docker-compose.yml", "deploy/Dockerfile", "deploy/prometheus/alerts.yml"]


@pytest.mark.parametrize("path", DEPLOYED)
def test_every_variable_is_a_setting(path):
    known = known_variables()
    text = (TOP / path).read_text()
    assert set(re.findall(r"FRESHET_[A-Z0-9_]+", text)) <= known


@pytest.mark.parametrize(
    "file", sorted((TOP / "deploy/chart/files").iterdir()), ids=lambda f: f.name
)
def test_the_chart_brings_the_alerts_and_the_dashboards_that_there_are(file):
    """Where it fails: `make dashboard`. A link would not come along with every checkout."""
    folder = "prometheus" if file.suffix == ".yml" else "grafana"
    assert not file.is_symlink()
    assert file.read_text() == (TOP / "deploy" / folder / file.name).read_text()


def test_the_image_says_whom_postgresqls_client_may_trust():
    """`sslrootcert=system` goes by this alone: the OpenSSL of psycopg knows of no place."""
    image = (TOP / "deploy/Dockerfile").read_text().rpartition("\nFROM ")[2]
    [named] = re.findall(r"^ENV SSL_CERT_FILE=(\S+)$", image, re.MULTILINE)
    assert named == "/etc/ssl/certs/ca-certificates.crt"
    assert "RUN test -s $SSL_CERT_FILE" in image, "a base image without them is to be found out"


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


def test_what_compose_publishes_by_itself_is_said():
    head = (TOP / "docker-compose.yml").read_text().partition("\nname:")[0]
    page = (TOP / "docs/connect/cluster.md").read_text()
    for name in ("kafka", "postgres"):
        [published] = COMPOSE["services"][name]["ports"]
        found = re.fullmatch(r"127\.0\.0\.1:\$\{(\w+):-(\d+)\}:\d+", published)
        assert found is not None
        for word in found.groups():
            assert word in head
            assert word in page


def test_composes_coordinators_ask_every_scheduler_about_a_page():
    asked = COMPOSE["services"]["coordinator"]["environment"]["SCHEDULER_URLS"]
    assert asked == f"http://scheduler:{DEFAULT_PORTS['scheduler']}"


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


def test_composes_logs_take_so_much_of_the_disk_at_most():
    for name, service in COMPOSE["services"].items():
        # This driver keeps 100 MB of a container; Docker's own default keeps all, for ever.
        assert service["logging"]["driver"] == "local", name


def test_the_settings_of_compose_are_accepted():
    environment = COMPOSE["services"]["scheduler"]["environment"]
    fields = {
        name.removeprefix(ENV_PREFIX).lower(): re.sub(r"\$\{\w+:-(.*?)\}", r"\1", value)
        for name, value in environment.items()
    }
    assert Settings(**fields).http_host == "0.0.0.0"


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
    groups = yaml.safe_load((TOP / "deploy/prometheus/alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_rules_are_about_metrics_that_exist_and_alerts_say_what_to_do():
    known = known_metrics()
    families = {re.sub(r"_(bucket|count|sum)$", "", name) for name in known} | known
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    alerts = [rule for rule in rules() if "alert" in rule]
    assert len(alerts) >= 8
    for rule in rules():
        assert used_metrics(rule["expr"]) <= known, rule
        assert set(re.findall(r"freshet:[a-z0-9:]+", rule["expr"])) <= recorded, rule
    for rule in alerts:
        assert used_metrics(rule["annotations"]["action"]) <= families, rule["alert"]
        assert rule["labels"]["severity"] in {"page", "ticket"}


@pytest.mark.parametrize("name", ["freshet", "workers"])
def test_the_dashboards_are_about_metrics_that_exist(name):
    board = json.loads((TOP / f"deploy/grafana/{name}.json").read_text())
    known = known_metrics()
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in panels:
        for target in panel["targets"]:
            used = used_metrics(target["expr"])
            assert used, panel["title"]
            assert used <= known, panel["title"]


def test_the_dashboard_by_worker_has_every_metric():
    """Where it fails: `make dashboard`."""
    assert (TOP / "deploy/grafana/workers.json").read_text() == dashboard.text()
    shown = set().union(
        *(
            used_metrics(t["expr"])
            for p in dashboard.dashboard()["panels"]
            for t in p.get("targets", ())
        )
    )
    ours = {name for name in known_metrics() if name.startswith("freshet_")}
    assert shown == {name for name in ours if not name.endswith(("_count", "_sum"))}


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


def test_the_image_has_the_kernels_that_its_workers_look_for():
    build, image = (TOP / "deploy/Dockerfile").read_text().split("\nFROM ")[-2:]
    before, compiling, _ = build.partition("freshet kernels")
    assert compiling
    assert "NUMBA_CACHE_DIR" not in build, "they are compiled beside the code, which is copied"
    processors = [re.findall(r"NUMBA_CPU_NAME=(\S+)", stage) for stage in (before, image)]
    assert processors == [["generic"], ["generic"]]
