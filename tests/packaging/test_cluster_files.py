"""docker-compose.cluster.yml, etc/kubernetes/cluster.yaml and etc/nats/nats.conf without an engine: their
settings are taken, and their parts name one another.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from broker.config.broker import load_settings
from broker.config.listeners import ListenerType
from tools.nats import server

ROOT = Path(__file__).parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.cluster.yml").read_text())
OBJECTS: list[dict[str, Any]] = list(yaml.safe_load_all((ROOT / "etc/kubernetes/cluster.yaml").read_text()))
MEMBERS = ("member-1", "member-2", "member-3")
SERVERS = ("log-1", "log-2", "log-3")


def named(kind: str, name: str) -> dict[str, Any]:
    [found] = [each for each in OBJECTS if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def test_the_compose_file_is_one() -> None:
    schema = json.loads((ROOT / "tests/packaging/compose_spec.json").read_text())
    jsonschema.Draft7Validator(schema).validate(COMPOSE)
    assert set(COMPOSE["services"]) == {*MEMBERS, *SERVERS}


def test_each_member_of_the_compose_file_is_one_of_its_cell(tmp_path: Path) -> None:
    services = COMPOSE["services"]
    seen = set()
    for name in MEMBERS:
        environment = dict(services[name]["environment"])
        settings = load_settings(ROOT / "etc/broker.yaml", environment, {}).cluster
        assert [(each.host, each.port) for each in settings.engine] == [(name, 4222) for name in SERVERS]
        assert settings.member == name
        assert settings.advertise is not None
        assert (settings.advertise.host, settings.advertise.port) == (name, settings.listen.port)
        assert str(settings.secret_file) == "/run/secrets/cluster"
        assert services[name]["secrets"] == ["cluster"]
        [address] = settings.addresses
        port = ListenerType().parse(address).port
        assert f"127.0.0.1:{port}:5672" in services[name]["ports"]
        seen.add(port)
        [volume] = [each for each in services[name]["volumes"] if each.endswith(":/var/lib/sluice")]
        assert volume.partition(":")[0] in COMPOSE["volumes"]
    assert len(seen) == len(MEMBERS)


def test_the_servers_of_the_compose_file_know_each_other() -> None:
    text = (ROOT / "etc/nats/nats.conf").read_text()
    assert re.findall(r"nats://(log-\d):6222", text) == list(SERVERS)
    assert "sync_interval: always" in text


def test_the_servers_take_their_settings(tmp_path: Path) -> None:
    binary = server()
    if binary is None:
        pytest.skip("needs nats-server, or Go to build it")
    for text in (
        (ROOT / "etc/nats/nats.conf").read_text(),
        named("ConfigMap", "sluice-log")["data"]["nats.conf"],
    ):
        file = tmp_path / "nats.conf"
        file.write_text(text.replace("$POD_NAME", "sluice-log-0"))
        done = subprocess.run(
            [binary, "-t", "-c", file], capture_output=True, text=True, timeout=20, check=False
        )
        assert done.returncode == 0, done.stderr


def test_the_settings_on_kubernetes_are_taken(tmp_path: Path) -> None:
    data = named("ConfigMap", "sluice-cluster")["data"]
    file = tmp_path / "broker.yaml"
    file.write_text(data["broker.yaml"])
    pod = named("StatefulSet", "sluice-cluster")["spec"]["template"]
    [container] = pod["spec"]["containers"]
    variables = {each["name"]: each.get("value", "sluice-cluster-1") for each in container["env"]}
    own = variables["SLUICE_CLUSTER_MEMBER"]
    variables["SLUICE_CLUSTER_ADVERTISE"] = variables["SLUICE_CLUSTER_ADVERTISE"].replace(
        "$(SLUICE_CLUSTER_MEMBER)", own
    )
    settings = load_settings(file, variables, {})
    cluster = settings.cluster
    log = named("StatefulSet", "sluice-log")["spec"]
    assert list(map(str, cluster.engine)) == [
        f"nats://sluice-log-{at}.{log['serviceName']}:4222" for at in range(log["replicas"])
    ]
    assert cluster.advertise is not None
    assert cluster.advertise.host == f"{own}.{named('StatefulSet', 'sluice-cluster')['spec']['serviceName']}"
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {
        "amqp": settings.listeners[0].port,
        "http": settings.http.port,
        "member": cluster.listen.port,
    }
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert str(cluster.secret_file).startswith(mounts["secret"])
    assert str(settings.data).startswith(mounts["data"] + "/")


@pytest.mark.parametrize("name", ["sluice-log", "sluice-cluster"])
def test_pods_of_one_kind_are_on_nodes_of_their_own(name: str) -> None:
    spec = named("StatefulSet", name)["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == labels
    assert spec["replicas"] == 3
    [rule] = spec["template"]["spec"]["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert rule["labelSelector"]["matchLabels"] == labels
    assert named("PodDisruptionBudget", name)["spec"]["selector"]["matchLabels"] == labels


def test_services_reach_ports_that_are_there() -> None:
    for service in (each for each in OBJECTS if each["kind"] == "Service"):
        name = service["spec"]["selector"]["app.kubernetes.io/name"]
        [container] = named("StatefulSet", name)["spec"]["template"]["spec"]["containers"]
        known = {each["name"] for each in container["ports"]}
        assert {each["targetPort"] for each in service["spec"]["ports"]} <= known
