"""Dockerfile and docker-compose.yml without an engine: every path, port, name and setting in them.

``compose_spec.json`` is the Compose Specification's schema of Docker Compose 1.29 (Apache License 2.0).
"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from broker.cli.verbs import serve
from broker.config.broker import load_settings
from broker.config.listeners import AddressType, ListenerType
from tests.packaging.dockerfile import Stage, health_command, stages

ROOT = Path(__file__).parents[2]
BUILD, FINAL = stages(ROOT / "Dockerfile")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
# Ports that the images of others listen on.
THEIRS = {"prometheus": {9090}, "grafana": {3000}, "job": set[int]()}


def broker_arguments() -> argparse.Namespace:
    """What the image's command says, as the command line reads it."""
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    assert FINAL.words("ENTRYPOINT") == ["sluice"]
    verb, *words = FINAL.words("CMD")
    assert verb == "serve"
    return parser.parse_args(words)


def broker_ports() -> set[int]:
    args = broker_arguments()
    return {ListenerType().parse(args.listen[0]).port, AddressType().parse(args.http).port}


def is_sent(name: str) -> bool:
    """Whether .dockerignore lets a path of the checkout into the build; the last rule that matches holds."""
    sent = True
    for rule in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = rule.lstrip("!")
        if not rule or rule.startswith("#"):
            continue
        parts = Path(name).parts
        heads = ["/".join(parts[: n + 1]) for n in range(len(parts))]
        if any(fnmatch.fnmatch(head, pattern.removeprefix("**/")) for head in heads) or (
            pattern.startswith("**/") and any(fnmatch.fnmatch(part, pattern[3:]) for part in parts)
        ):
            sent = rule.startswith("!")
    return sent


# --- Dockerfile


def copies(stage: Stage) -> list[tuple[str, list[str], str]]:
    """From where, what and to where."""
    found = []
    for rest in stage.all("COPY"):
        words = rest.split()
        origin = words.pop(0).removeprefix("--from=") if words[0].startswith("--from=") else ""
        found.append((origin, words[:-1], words[-1]))
    return found


@pytest.mark.parametrize("stage", [BUILD, FINAL], ids=["build", "final"])
def test_what_is_copied_is_there_and_is_sent(stage: Stage) -> None:
    for origin, sources, _ in copies(stage):
        if origin:
            assert origin == BUILD.name
            continue
        assert [name for name in sources if not (ROOT / name).exists()] == []
        assert [name for name in sources if not is_sent(name)] == []


def test_nothing_that_was_compiled_here_is_sent() -> None:
    assert is_sent("broker/amqp/links/connection.pyx")
    assert is_sent("broker/http/console/index.html")
    unwanted = ("broker/amqp/wire.cpython-311-x86_64-linux-gnu.so", "broker/__pycache__/a.pyc", ".git/config")
    assert [
        name for name in (*unwanted, "tests/conftest.py", "data/journal", ".venv/bin/python") if is_sent(name)
    ] == []


def test_both_stages_are_of_one_image_with_a_version() -> None:
    assert BUILD.image == FINAL.image
    assert re.fullmatch(r"python:\d+\.\d+-slim-\w+", FINAL.image)


def test_what_is_built_is_what_the_second_stage_takes() -> None:
    assert copies(FINAL)[0] == ("build", ["/opt/sluice"], "/opt/sluice")
    assert any("venv /opt/sluice" in step for step in BUILD.all("RUN"))
    assert "PATH=/opt/sluice/bin:$PATH" in FINAL.last("ENV")


def test_it_does_not_run_as_root() -> None:
    user = FINAL.last("USER")
    made = next(step for step in FINAL.all("RUN") if "useradd" in step)
    assert re.search(rf"--uid 10001 .*\b{user}\b", made)
    assert "no-new-privileges:true" in SERVICES["broker"]["security_opt"]
    assert SERVICES["broker"]["cap_drop"] == ["ALL"]


def test_its_command_is_one_the_broker_takes() -> None:
    args = broker_arguments()
    copied = {target: sources[0] for _, sources, target in copies(FINAL)}
    settings = load_settings(
        ROOT / copied[str(args.config)],
        {},
        {
            "listen": args.listen,
            "http": args.http,
            "data": args.data,
            "policies": [ROOT / copied[args.policies[0]]],
        },
    )
    assert str(settings.data) == FINAL.last("VOLUME") == FINAL.last("WORKDIR")
    assert {int(port) for port in FINAL.last("EXPOSE").split()} == broker_ports()


def test_its_health_is_its_readiness() -> None:
    python, option, code = health_command(FINAL)
    assert (python, option) == ("python", "-c")
    ast.parse(code)
    port = AddressType().parse(broker_arguments().http).port
    assert f"http://127.0.0.1:{port}/readyz" in code


# --- docker-compose.yml


def test_compose_keeps_to_the_specification() -> None:
    schema = json.loads((ROOT / "tests/packaging/compose_spec.json").read_text())
    del schema["$schema"]  # the draft it was written for; the older one has all it uses
    jsonschema.Draft7Validator(schema).validate(COMPOSE)


def mounts(name: str) -> list[tuple[str, str, str]]:
    """Source, target and mode of a service's volumes."""
    return [tuple((each + ":rw").split(":")[:3]) for each in SERVICES[name].get("volumes", [])]


@pytest.mark.parametrize("name", SERVICES)
def test_every_path_is_there_and_every_volume_declared(name: str) -> None:
    for source, target, mode in mounts(name):
        assert target.startswith("/")
        if source.startswith("."):
            assert (ROOT / source).exists(), source
            assert mode == "ro"
        else:
            assert source in COMPOSE["volumes"]


@pytest.mark.parametrize("name", SERVICES)
def test_every_port_is_one_the_service_has_and_on_loopback(name: str) -> None:
    inside = broker_ports() if name == "broker" else THEIRS[name]
    published = [each.split(":") for each in SERVICES[name].get("ports", [])]
    assert {int(port) for _, _, port in published} == inside
    assert {host for host, _, _ in published} <= {"127.0.0.1"}


@pytest.mark.parametrize("name", SERVICES)
def test_whom_it_waits_for_is_there_and_can_be_healthy(name: str) -> None:
    needed = SERVICES[name].get("depends_on", {})
    assert set(needed) <= SERVICES.keys()
    if isinstance(needed, dict):
        healthy = {each for each, how in needed.items() if how["condition"] == "service_healthy"}
        assert healthy <= {"broker"}  # the one whose image says how healthy it is


def test_images_of_others_have_a_version() -> None:
    for name, service in SERVICES.items():
        if "build" not in service:
            assert re.fullmatch(r"[a-z/-]+:v?\d+\.\d+\.\d+[-a-z0-9]*", service["image"]), name


def test_the_brokers_variables_are_settings() -> None:
    load_settings(None, {name: str(value) for name, value in SERVICES["broker"]["environment"].items()}, {})


def test_what_is_mounted_over_the_image_is_what_it_would_have_read() -> None:
    targets = {target for _, target, _ in mounts("broker")}
    assert targets == {"/etc/sluice/broker.yaml", "/etc/sluice/policies", "/var/lib/sluice"}


def test_prometheus_is_told_where_the_broker_is() -> None:
    of_compose = yaml.safe_load((ROOT / "etc/prometheus/compose.yml").read_text())
    [job] = of_compose["scrape_configs"]
    [target] = job["static_configs"][0]["targets"]
    host, port = target.split(":")
    assert host in SERVICES
    assert int(port) == AddressType().parse(broker_arguments().http).port
    mounted = {where: (ROOT / source) for source, where, _ in mounts("prometheus")}
    assert "/etc/prometheus/prometheus.yml" in mounted
    for rules in of_compose["rule_files"]:
        assert mounted[f"/etc/prometheus/{rules}"].exists()


def test_prometheus_of_compose_differs_from_the_other_in_the_target_alone() -> None:
    one = yaml.safe_load((ROOT / "etc/prometheus/prometheus.yml").read_text())
    other = yaml.safe_load((ROOT / "etc/prometheus/compose.yml").read_text())
    for each in (one, other):
        each["scrape_configs"][0]["static_configs"] = "…"
    assert one == other


def test_grafana_is_told_where_prometheus_and_the_dashboards_are() -> None:
    provisioning = ROOT / "etc/grafana/provisioning"
    sources = [yaml.safe_load(file.read_text()) for file in (provisioning / "datasources").glob("*.y*ml")]
    environment = SERVICES["grafana"]["environment"]
    for source in (each for file in sources for each in file["datasources"]):
        url = re.sub(r"\$\{?(\w+)\}?", lambda name: environment[name[1]], source["url"])
        assert url == "http://prometheus:9090"
    targets = {target for _, target, _ in mounts("grafana")}
    assert "/etc/grafana/provisioning" in targets
    for file in (provisioning / "dashboards").glob("*.y*ml"):
        for provider in yaml.safe_load(file.read_text())["providers"]:
            assert provider["options"]["path"] in targets


def test_the_job_reads_what_the_broker_writes() -> None:
    _, script, events = SERVICES["job"]["command"]
    mounted = {target: source for source, target, _ in mounts("job")}
    source = ROOT / mounted[str(Path(script).parent)] / Path(script).name
    compile(source.read_text(), str(source), "exec")
    args = broker_arguments()
    settings = load_settings(ROOT / "etc/broker.yaml", {}, {"data": args.data})
    assert events == str(settings.data / settings.events.file)
    assert mounted[args.data] == next(source for source, target, _ in mounts("broker") if target == args.data)
    assert SERVICES["job"]["profiles"] == ["jobs"]
