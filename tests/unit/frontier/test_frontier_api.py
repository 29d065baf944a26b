"""The API is crawler-commons' own, and all of it is answered."""

import asyncio
import subprocess
import sys

import pytest

from deploy.docs.places import TOP
from services.frontier.api import urlfrontier_pb2 as api
from services.frontier.server import handler_of
from services.frontier.service import NO_COUNTERPART, Service

FOLDER = "services/frontier/api"


def test_its_code_is_what_its_description_makes(tmp_path):
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{TOP}", f"--python_out={tmp_path}"]
    command += [f"--pyi_out={tmp_path}", f"{FOLDER}/urlfrontier.proto"]
    subprocess.run(command, check=True, cwd=TOP)
    for name in ("urlfrontier_pb2.py", "urlfrontier_pb2.pyi"):
        made = (tmp_path / FOLDER / name).read_text()
        assert (TOP / FOLDER / name).read_text() == made, "run `make api`"


def test_its_description_keeps_its_licence():
    head = (TOP / FOLDER / "urlfrontier.proto").read_text()[:1000]
    assert "Apache License, Version 2.0" in head
    assert "Crawler-Commons" in head


class Parts:
    """Stands for any part of the service."""

    def __getattr__(self, name):
        return name


@pytest.fixture
def methods():
    parts = Parts()
    return Service("", parts, parts, parts, parts, parts, asyncio.Event()).methods()


def test_every_call_of_the_api_has_its_answer_and_no_other_has(methods):
    calls = {method.name for method in api.DESCRIPTOR.services_by_name["URLFrontier"].methods}
    assert methods.keys() == calls
    assert len(calls) == 19
    assert handler_of(methods).service_name() == "urlfrontier.URLFrontier"


def test_the_page_of_the_documentation_has_every_call(methods):
    page = (TOP / "docs" / "connect" / "urlfrontier.md").read_text()
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    assert methods.keys() <= rows.keys()
    refused = {name for name, line in rows.items() if "UNIMPLEMENTED |" in line}
    assert refused == NO_COUNTERPART.keys()
