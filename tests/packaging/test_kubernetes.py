"""etc/kubernetes/sluice.yaml without a cluster: its settings are taken, and its parts name one another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from broker.config.broker import load_settings
from broker.config.policy_files import parse_policies
from tests.packaging.dockerfile import stages

ROOT = Path(__file__).parents[2]
OBJECTS: dict[str, dict[str, Any]] = {
    each["kind"]: each for each in yaml.safe_load_all((ROOT / "etc/kubernetes/sluice.yaml").read_text())
}
POD = OBJECTS["StatefulSet"]["spec"]["template"]
[CONTAINER] = POD["spec"]["containers"]


def test_its_settings_and_policies_are_taken(tmp_path: Path) -> None:
    data = OBJECTS["ConfigMap"]["data"]
    file = tmp_path / "broker.yaml"
    file.write_text(data["broker.yaml"])
    settings = load_settings(file, {}, {})
    [mount] = [each["mountPath"] for each in CONTAINER["volumeMounts"] if each["name"] == "settings"]
    assert [str(path) for path in settings.policies] == [f"{mount}/policies.yaml"]
    assert CONTAINER["args"][-1] == f"{mount}/broker.yaml"
    parse_policies(data["policies.yaml"], "policies.yaml")
    ports = {each["name"]: each["containerPort"] for each in CONTAINER["ports"]}
    assert settings.http is not None
    assert ports == {"amqp": settings.listeners[0].port, "http": settings.http.port}


def test_what_it_keeps_is_on_its_disk() -> None:
    data = yaml.safe_load(OBJECTS["ConfigMap"]["data"]["broker.yaml"])["data"]
    mounts = {each["name"]: each["mountPath"] for each in CONTAINER["volumeMounts"]}
    assert data.startswith(mounts["data"] + "/")
    claims = [each["metadata"]["name"] for each in OBJECTS["StatefulSet"]["spec"]["volumeClaimTemplates"]]
    volumes = [each["name"] for each in POD["spec"]["volumes"]]
    assert set(mounts) == {*claims, *volumes}


def test_everything_means_the_same_pods_and_ports() -> None:
    labels = POD["metadata"]["labels"]
    spec = OBJECTS["StatefulSet"]["spec"]
    assert spec["selector"]["matchLabels"] == labels
    assert OBJECTS["Service"]["spec"]["selector"] == labels
    assert OBJECTS["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    assert spec["serviceName"] == OBJECTS["Service"]["metadata"]["name"]
    names = {each["name"] for each in CONTAINER["ports"]}
    assert {each["targetPort"] for each in OBJECTS["Service"]["spec"]["ports"]} == names
    assert {CONTAINER[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")} <= names


def test_it_runs_as_the_images_user() -> None:
    user = POD["spec"]["securityContext"]["runAsUser"]
    final = stages(ROOT / "Dockerfile")[-1]
    assert any(f"--uid {user}" in step for step in final.all("RUN"))
    assert CONTAINER["args"][0] == final.words("CMD")[0]
