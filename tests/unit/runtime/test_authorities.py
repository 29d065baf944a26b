"""PostgreSQL's client is told whom the machine trusts, unless the environment says so."""

import os
import ssl

import pytest

from shared.runtime.authorities import trust_as_the_machine_does


@pytest.fixture
def said(monkeypatch):
    """What the environment says after a start on a machine with these authorities."""

    def start(environment, cafile, capath):
        known = ssl.get_default_verify_paths()._replace(cafile=cafile, capath=capath)
        monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: known)
        monkeypatch.setattr(os, "environ", dict(environment))
        trust_as_the_machine_does()
        return os.environ

    return start


@pytest.mark.parametrize(
    ("cafile", "capath", "expected"),
    [
        ("/ca.pem", "/certs", {"SSL_CERT_FILE": "/ca.pem", "SSL_CERT_DIR": "/certs"}),
        (None, "/certs", {"SSL_CERT_DIR": "/certs"}),
        (None, None, {}),
    ],
)
def test_what_python_knows_is_said(said, cafile, capath, expected):
    assert said({}, cafile, capath) == expected
    assert said({"SSL_CERT_FILE": ""}, cafile, capath) == {"SSL_CERT_FILE": ""} | expected


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_what_the_environment_says_holds_alone(said, name):
    assert said({name: "/own"}, "/ca.pem", "/certs") == {name: "/own"}
