"""What the chart is told about Kafka's certificates is what its pods speak."""

import json

import pytest
from test_chart import ALL, container_of, of_kind, plain_environment, rendered, workers_of

SECRET = 'kafka.tls={"secret":"kafka-tls"}'
PROTOCOL = "FRESHET_KAFKA_SECURITY_PROTOCOL"


def environments(*settings):
    """Of each worker, and of the migration."""
    documents = rendered((), *ALL, *settings)
    pods = [*workers_of(documents).values(), *of_kind(documents, "Job").values()]
    return [plain_environment(container_of(pod)) for pod in pods]


def test_who_names_certificates_gets_tls():
    for environment in environments(SECRET):
        assert environment[PROTOCOL] == "SSL"
        assert environment["FRESHET_KAFKA_SSL_CAFILE"] == "/run/freshet/kafka-tls/ca.crt"
    for environment in environments():
        assert PROTOCOL not in environment


@pytest.mark.parametrize("protocol", ["SASL_SSL", "PLAINTEXT"])
def test_what_settings_say_goes_before_it(protocol):
    said = f"settings={json.dumps({PROTOCOL: protocol})}"
    assert {environment[PROTOCOL] for environment in environments(SECRET, said)} == {protocol}
