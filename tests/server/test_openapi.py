"""schemathesis against the OpenAPI document: every operation, with data that fits it and data that does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from starlette.routing import Route

from quiesce.server import Settings, create_app
from quiesce.server.openapi import document

from .support import serving, talker

pytestmark = pytest.mark.promise("P7")

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "use_after_free",
)


def _schemathesis(url: str, directory: Path, *options: str) -> None:
    script = Path(sys.executable).with_name("schemathesis")
    command = [str(script), "run", f"{url}/openapi.json", "--checks", ",".join(CHECKS), "--no-color", *options]
    command += ["--exclude-operation-id", "stream_changes"]  # it has no end; test_changes.py is about it
    done = subprocess.run(command, check=False, cwd=directory, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def test_no_operation_fails_or_breaks_the_document(tmp_path: Path):
    with serving(talker(), settings=Settings(max_runs_per_key=2000)) as served:
        _schemathesis(served.url, tmp_path, "--phases", "coverage", "--seed", "1")


@pytest.mark.proof
def test_no_operation_fails_or_breaks_the_document_at_length(tmp_path: Path):
    with serving(talker(), settings=Settings(max_runs_per_key=2000)) as served:
        _schemathesis(served.url, tmp_path, "--max-examples", "100")


def test_every_route_is_in_the_document_and_the_other_way_round():
    app = create_app(talker())
    routed = {
        (method.lower(), route.path)
        for route in app.routes
        if isinstance(route, Route) and route.path not in ("/", "/openapi.json")
        for method in (route.methods or set()) - {"HEAD"}
    }
    described = {(method, path) for path, methods in document(Settings())["paths"].items() for method in methods}
    assert routed == described


def test_every_reference_of_the_document_resolves():
    whole = document(Settings())
    schemas = whole["components"]["schemas"]

    def references(value: object) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [ref for each in value.values() for ref in references(each)]
        if isinstance(value, list):
            return [ref for each in value for ref in references(each)]
        return []

    for reference in references(whole):
        assert reference.removeprefix("#/components/schemas/") in schemas
