"""The `cluster` section: what it takes, what it refuses and where, and what it warns of."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.config.broker import Settings, broker_schema, load_settings
from broker.config.cluster import EngineUrl, check_cluster, read_secret
from broker.config.listeners import ListenAddress
from broker.errors import ConfigError, OperatorError

ENGINE = "engine: [nats://127.0.0.1:4222]"


def loaded(folder: Path, text: str) -> Settings:
    file = folder / "broker.yaml"
    file.write_text(text)
    return load_settings(file, {}, {})


def refused(folder: Path, *lines: str) -> list[str]:
    text = "cluster:\n" + "".join(f"  {line}\n" for line in lines)
    with pytest.raises(ConfigError) as caught:
        loaded(folder, text)
    return [str(each).removeprefix(f"{folder}/") for each in caught.value.problems]


def secret(folder: Path, text: str = "0123456789abcdef0123\n", mode: int = 0o600) -> Path:
    file = folder / "secret"
    file.write_text(text)
    file.chmod(mode)
    return file


def test_no_section_is_no_cluster(tmp_path: Path) -> None:
    settings = loaded(tmp_path, "auto_create: true\n")
    assert not settings.cluster.is_configured
    assert check_cluster(settings.cluster) == []


def test_all_of_it(tmp_path: Path) -> None:
    file = secret(tmp_path)
    settings = loaded(
        tmp_path,
        f"""cluster:
  cell: orders
  member: a
  engine: [nats://10.0.0.1, "tls://[::1]:4333"]
  replicas: 5
  ttl: 4s
  margin: 600ms
  mark: 1s
  log_size: 1GB
  rank: 2
  listen: 0.0.0.0:5680
  advertise: 10.0.0.1:5681
  secret_file: {file}
  addresses: [amqp://a.example.org, amqps://a.example.org:5671]
""",
    )
    found = settings.cluster
    assert (found.cell, found.name, found.replicas, found.rank) == ("orders", "a", 5, 2)
    assert found.engine == (EngineUrl("10.0.0.1", 4222), EngineUrl("::1", 4333, secure=True))
    assert str(found.engine[1]) == "tls://[::1]:4333"
    assert (found.ttl_ms, found.margin_ms, found.mark_ms) == (4000, 600, 1000)
    assert found.log_size == 1 << 30
    assert found.listen == ListenAddress("0.0.0.0", 5680)
    assert found.advertised == ListenAddress("10.0.0.1", 5681)
    assert found.addresses == ("amqp://a.example.org:5672", "amqps://a.example.org:5671")
    assert found.secret() == b"0123456789abcdef0123"


def test_defaults(tmp_path: Path) -> None:
    found = loaded(tmp_path, f"cluster: {{{ENGINE}}}\n").cluster
    assert (found.cell, found.replicas, found.rank) == ("main", 3, 0)
    assert found.name
    assert found.log_size == 256 << 20
    assert found.advertised == found.listen == ListenAddress("127.0.0.1", 5680)


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (("cell: main",), "broker.yaml:2:3: cluster needs engine: the servers that keep its log"),
        (
            (ENGINE, "ttl: 1500ms"),
            "broker.yaml:3:3: ttl 1500 ms must be more than margin 500 ms and twice mark 500 ms",
        ),
        (
            (ENGINE, "mark: 2s"),
            "broker.yaml:3:3: ttl 3 s must be more than margin 500 ms and twice mark 2 s",
        ),
        (
            (ENGINE, "listen: 10.0.0.1:5680"),
            "broker.yaml:3:3: cluster.listen 10.0.0.1:5680: others can reach it, so secret_file is needed",
        ),
        (
            (ENGINE, "engine_user: sluice"),
            "broker.yaml:3:3: engine_user and engine_password_file go together",
        ),
        ((ENGINE, "replicas: 2"), "broker.yaml:3:13: replicas: expected 1, 3 or 5, not 2"),
        ((ENGINE, "membr: a"), "broker.yaml:3:3: unknown key 'membr' (did you mean 'member'?)"),
    ],
)
def test_refused_at_its_place(tmp_path: Path, lines: tuple[str, ...], problem: str) -> None:
    assert refused(tmp_path, *lines) == [problem]


@pytest.mark.parametrize(
    "url", ["http://a:4222", "nats://", "nats://u:p@a:4222", "nats://a:99999", "nats://a:4222/x"]
)
def test_engines_that_are_none(tmp_path: Path, url: str) -> None:
    [problem] = refused(tmp_path, f"engine: ['{url}']")
    assert problem.startswith("broker.yaml:2:")


@pytest.mark.parametrize("name", ["a.b", "a b", "*", ">", "a" * 65])
def test_names_that_a_subject_may_not_have(tmp_path: Path, name: str) -> None:
    [problem] = refused(tmp_path, ENGINE, f"cell: '{name}'")
    assert "cell: expected letters" in problem


def test_a_secret_others_may_read_is_none(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match="everybody may read"):
        read_secret(secret(tmp_path, mode=0o644))
    with pytest.raises(OperatorError, match="16 bytes at least and has 5"):
        read_secret(secret(tmp_path, "short"))
    with pytest.raises(OperatorError, match="No such file"):
        read_secret(tmp_path / "none")


def test_one_replica_is_warned_of(tmp_path: Path) -> None:
    settings = loaded(tmp_path, f"cluster: {{{ENGINE}, replicas: 1}}\n")
    assert check_cluster(settings.cluster) == [
        "cluster.replicas is 1: the log is on one server, and lost with its disk"
    ]


def test_the_schema_has_it() -> None:
    section = broker_schema()["properties"]["cluster"]  # type: ignore[index]
    assert set(section["properties"]) >= {"cell", "member", "engine", "ttl", "margin", "mark", "secret_file"}
