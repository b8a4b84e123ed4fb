"""The files in `examples/fleet`: what they say about times, ports, paths and options is true of the programs."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import yaml

from quiesce.cli.agent_options import load_agent
from quiesce.cli.main import make_parser
from quiesce.server.openapi import OPERATIONS

from ..docs.pages import ROOT

pytestmark = pytest.mark.house

FOLDER = ROOT / "examples" / "fleet"


def options_of(command: list[str]) -> Any:
    """The options of a command, as the program itself reads them."""
    return make_parser().parse_args(command)


def deployments() -> dict[str, Any]:
    found = yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text())
    return {each["metadata"]["name"]: each for each in found}


def test_the_pods_have_more_time_than_the_drain_takes() -> None:
    found = deployments()
    assert sorted(found) == ["quiesce", "quiesce-replica", "quiesce-worker"]
    for name in ("quiesce-replica", "quiesce-worker"):
        spec = found[name]["spec"]
        pod = spec["template"]["spec"]
        (container,) = pod["containers"]
        assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
        options = options_of([str(each) for each in container["args"]])
        pause = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["sleep", "0"])
        assert pause[0] == "sleep"
        # A worker takes up to 5 s more when the database does not answer.
        assert pod["terminationGracePeriodSeconds"] >= int(pause[1]) + options.drain + 5
        names = {each["name"] for each in container["env"]}
        used = re.findall(r"\$\((\w+)\)", " ".join(container["args"]))
        assert used
        assert set(used) <= names


def test_the_replica_is_ready_only_while_it_takes_runs() -> None:
    found = deployments()
    replica, service = found["quiesce-replica"]["spec"]["template"], found["quiesce"]["spec"]
    (container,) = replica["spec"]["containers"]
    options = options_of(container["args"])
    probe = container["readinessProbe"]["httpGet"]
    (health,) = [each for each in OPERATIONS if each.path == probe["path"]]
    assert (health.method, health.open_to_all, sorted(health.answers)) == ("get", True, [200, 503])
    assert "livenessProbe" not in container  # a replica that drains, or waits for the database, is not restarted
    assert "preStop" in container["lifecycle"]
    assert options.fleet
    ports = {probe["port"], container["ports"][0]["containerPort"], service["ports"][0]["targetPort"], options.port}
    assert len(ports) == 1
    assert service["selector"] == replica["metadata"]["labels"]


def test_the_services_of_compose_fit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    services = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
    for name in ("replica", "worker"):
        service = services[name]
        options = options_of(shlex.split(service["command"]))
        assert int(service["stop_grace_period"].removesuffix("s")) >= options.drain + 5
        assert options.store == "postgresql://quiesce:quiesce@postgres/quiesce"
        assert service["depends_on"]["postgres"]["condition"] == "service_healthy"
    postgres = services["postgres"]
    assert postgres["environment"] == {"POSTGRES_USER": "quiesce", "POSTGRES_PASSWORD": "quiesce"}
    port = options_of(shlex.split(services["replica"]["command"])).port
    assert f"--to replica:{port}" in services["proxy"]["command"]
    assert services["proxy"]["ports"] == [f"{port}:{port}"]
    monkeypatch.syspath_prepend(FOLDER)
    for target in options_of(shlex.split(services["worker"]["command"])).agents:
        assert load_agent(target).name == "agent"
