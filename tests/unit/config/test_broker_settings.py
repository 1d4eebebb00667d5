"""The broker's own settings: file, environment, flags, and what is wrong with them."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from broker.cli.verbs import serve
from broker.config.broker import (
    FIELDS,
    Settings,
    broker_reference,
    broker_schema,
    load_settings,
)
from broker.config.connection_limits import ConnectionLimit
from broker.config.diagnostics import Events, Metrics
from broker.config.flow import BrokerDefaults
from broker.config.forwards import BridgeDefinition, ChannelDefinition, Remote, RouteDefinition
from broker.config.limits import Limits
from broker.config.listeners import ListenAddress, Listener
from broker.config.security import Security
from broker.config.tls import Identification, NamedIdentification, Tls
from broker.errors import ConfigError, OperatorError
from broker.loggers import LoggerLevel
from broker.units import MB, parse_size

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def from_yaml(text: str, environment: dict[str, str] | None = None, **flags: object) -> Settings:
    path = Path("broker.yaml")
    path.write_text(text)
    return load_settings(path, environment or {}, flags)


def complaints(text: str = "", environment: dict[str, str] | None = None, **flags: object) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        from_yaml(text, environment, **flags)
    return str(refused.value).split("\n")


def test_nothing_set_is_every_default() -> None:
    settings = load_settings(None, {}, {})
    assert settings == Settings()
    assert settings.listeners == (Listener("127.0.0.1", 5672, allow_plain=True),)
    assert settings.http == ListenAddress("127.0.0.1", 8672)
    assert settings.limits == Limits(
        max_connections=10_000,
        max_sessions=1024,
        max_links=1024,
        max_frame_size=65_536,
        max_message_size=100 * MB,
        large_message_size=MB,
        handshake_timeout_ms=10_000,
        idle_timeout_ms=60_000,
        shutdown_timeout_ms=10_000,
    )
    assert settings.flow.defaults == BrokerDefaults()
    assert (settings.flow.connection_flow_limit, settings.flow.connection_flow_limit_enabled) == (1000, False)
    assert settings.policies == ()


def test_the_policies_directory_is_taken_if_it_exists() -> None:
    Path("policies").mkdir()
    assert load_settings(None, {}, {}).policies == (Path("policies"),)


@pytest.mark.parametrize("text", ["", "# nothing\n", "limits:\nflow:\n", "---\n"])
def test_an_empty_file_or_section_sets_nothing(text: str) -> None:
    assert from_yaml(text) == Settings()


def test_the_shipped_file_says_the_defaults() -> None:
    shipped = load_settings(ROOT / "etc" / "broker.yaml", {}, {})
    assert shipped == load_settings(None, {}, {"policies": ["policies"]})


def test_every_setting_can_stand_in_a_file() -> None:
    settings = from_yaml(
        """
        listeners: [amqp://0.0.0.0:5673, "amqp://[::1]:0"]
        http: "[::]:80"
        http_allow_writes: true
        websocket_origins: [https://console.example.org, "http://[::1]:8080"]
        cells: auto
        data: /var/lib/sluice
        backup_directory: /var/backups/sluice
        policies: [a.yaml, more]
        auto_create: false
        virtual_hosts: [shop, eu.example.org]
        log_level: debug
        log_levels: [sluice.amqp=warning]
        log_format: json
        log_lines_per_peer: 7
        metrics: {per_subscription: true, per_link: true}
        connection_limits: [{user: till, max_connections: 3}]
        bridges: [{from: a, to: b, selector: "x = 1"}]
        routes: [{name: hq, url: "amqp://u:p@hq", address: orders, flow_stop_count: 10}]
        channels: [{name: c, topic: t, to: "239.1.2.3:5000", max_rate: 1MB, ttl: 2}]
        memory_limit: 64MB
        store_limit: 1GB
        temp_limit: 0
        store: {journal_file_size: 2MB}
        limits: {max_connections: 5, max_sessions: 6, max_links: 7, max_frame_size: 4KB,
                 max_message_size: 1 MB, large_message_size: 64 KB,
                 http_requests: 9, http_writes: 8, http_logins: 7,
                 handshake_timeout: 2s, idle_timeout: 0, shutdown_timeout: 500 ms,
                 max_connections_per_address: 8, max_connections_per_user: 9, max_handshakes: 10,
                 max_connections_per_listener: 24, max_connections_per_virtual_host: 25,
                 max_nodes_per_user: 11, max_backups: 23, max_connection_links: 12,
                 max_first_frame_size: 1 KB,
                 max_depth: 13, max_elements: 140, max_selector_length: 15, max_selector_depth: 16,
                 max_unsettled: 17, max_transactions: 19, max_transaction_size: 1 MB,
                 max_transactions_per_user: 26, max_transaction_size_per_user: 2 MB,
                 transaction_timeout: 20 s,
                 max_request_size: 8 KB, max_waiting_requests: 18,
                 control_share: 19%, http_share: 22%, listen_backlog: 20, send_timeout: 21s}
        flow: {flow_control: false, default_flow_stop_threshold: 60%, default_flow_resume_threshold: 50,
               max_size: 1GB, producer_window: 9, initial_credit: 8, consumer_flow_limit: 7,
               consumer_flow_threshold: 6%, connection_flow_limit: 5, connection_flow_limit_enabled: true,
               consumer_flow_min: 4, auto_queue_consumer_flow_limit: 3, auto_topic_consumer_flow_limit: 0,
               connection_memory_limit: 3MB}
        security: {acl: etc/acl.yaml, metrics: open, session_idle: 1m, session_lifetime: 1h,
                   users: etc/users, allow_anonymous: true, mechanisms: [PLAIN, EXTERNAL],
                   plain_without_tls: true, oauth_issuer: "https://id.example.org", oauth_audience: [sluice],
                   oauth_jwks: etc/jwks.json, oauth_algorithms: [ES512], oauth_user_claim: email,
                   oauth_groups_claim: roles, free_attempts: 2, first_pause: 2 s, longest_pause: 5 s}
        tls: {certificate: a.pem, key: b.pem, key_password_file: c, client_ca: d.pem, user_from: SAN email,
              client_certificates: required, min_version: 1.3, ciphers: ECDHE+AESGCM,
              server_names: [{names: [mq.example.org], certificate: e.pem, key: f.pem}]}
        events: {enabled: false, file: /var/log/flow.jsonl, max_size: 1 MB, keep: 0, sample_interval: 5s}
        cluster: {cell: c, member: m, engine: ["nats://e:1"], engine_user: u, engine_password_file: p,
                  engine_tls_ca: ca,
                  engine_monitors: ["http://10.0.0.1:8222"], replicas: 5, ttl: 5s, margin: 1s, mark: 1s,
                  rebalance: 5m, rank: 1,
                  listen: "10.0.0.1:1", advertise: "10.0.0.1:2", secret_file: s, addresses: ["amqp://m:1"],
                  log_size: 1GB}
        """
    )
    assert settings.events == Events(False, Path("/var/log/flow.jsonl"), MB, 0, 5000)
    assert settings.listeners == (Listener("0.0.0.0", 5673, False), Listener("::1", 0, True))
    assert settings.http == ListenAddress("::", 80)
    assert settings.http_allow_writes
    assert settings.websocket_origins == ("https://console.example.org", "http://[::1]:8080")
    assert (settings.data, settings.policies) == (Path("/var/lib/sluice"), (Path("a.yaml"), Path("more")))
    assert (settings.auto_create, settings.log_level) == (False, "debug")
    assert settings.virtual_hosts == ("shop", "eu.example.org")
    assert settings.bridges == (BridgeDefinition("a", "b", "x = 1", False),)
    route = RouteDefinition("hq", Remote("amqp", "hq", 5672, "u", "p"), "orders", "orders")
    assert settings.routes == (replace(route, limits={"flow_stop_count": 10}),)
    assert settings.channels == (ChannelDefinition("c", "t", "239.1.2.3", 5000, MB, 2),)
    assert (settings.memory_limit, settings.store_limit, settings.temp_limit) == (64 * MB, 1024 * MB, 0)
    assert settings.journal_file_size == 2 * MB
    assert settings.backups == Path("/var/backups/sluice")
    assert settings.limits == Limits(
        max_connections=5,
        max_sessions=6,
        max_links=7,
        max_frame_size=4096,
        max_message_size=MB,
        large_message_size=64 << 10,
        handshake_timeout_ms=2000,
        idle_timeout_ms=0,
        shutdown_timeout_ms=500,
        http_requests=9,
        http_writes=8,
        http_logins=7,
        max_connections_per_address=8,
        max_connections_per_user=9,
        max_handshakes=10,
        max_nodes_per_user=11,
        max_backups=23,
        max_connection_links=12,
        max_first_frame_size=1024,
        max_depth=13,
        max_elements=140,
        max_selector_length=15,
        max_selector_depth=16,
        max_unsettled=17,
        max_transactions=19,
        max_transaction_size=1 << 20,
        max_transactions_per_user=26,
        max_transaction_size_per_user=2 << 20,
        transaction_timeout_ms=20_000,
        max_request_size=8192,
        max_waiting_requests=18,
        control_share=19,
        http_share=22,
        listen_backlog=20,
        send_timeout_ms=21_000,
        max_connections_per_listener=24,
        max_connections_per_virtual_host=25,
    )
    assert settings.connection_limits == (ConnectionLimit("user", "till", 3),)
    assert settings.flow.defaults == BrokerDefaults(
        flow_control=False,
        default_flow_stop_threshold=60,
        default_flow_resume_threshold=50,
        max_size=1024 * MB,
        consumer_flow_limit=7,
        consumer_flow_threshold=6,
        producer_window=9,
        initial_credit=8,
        max_message_size=MB,
        consumer_flow_min=4,
        auto_queue_consumer_flow_limit=3,
        auto_topic_consumer_flow_limit=0,
    )
    assert (settings.flow.connection_flow_limit, settings.flow.connection_flow_limit_enabled) == (5, True)
    assert settings.flow.connection_memory_limit == 3 * MB
    assert settings.cells == 0
    assert settings.log_levels == (LoggerLevel("sluice.amqp", "warning"),)
    assert (settings.log_format, settings.log_lines_per_peer) == ("json", 7)
    assert settings.metrics == Metrics(True, True)
    named = NamedIdentification(("mq.example.org",), Identification(Path("e.pem"), Path("f.pem")))
    paths = Path("a.pem"), Path("b.pem"), Path("c"), (named,), Path("d.pem")
    assert settings.tls == Tls(*paths, "required", "SAN email", "1.3", "ECDHE+AESGCM")
    assert settings.security == Security(
        users=Path("etc/users"),
        allow_anonymous=True,
        mechanisms=("PLAIN", "EXTERNAL"),
        plain_without_tls=True,
        oauth_issuer="https://id.example.org",
        oauth_audience=("sluice",),
        oauth_jwks="etc/jwks.json",
        oauth_algorithms=("ES512",),
        oauth_user_claim="email",
        oauth_groups_claim="roles",
        free_attempts=2,
        first_pause_ms=2000,
        longest_pause_ms=5000,
        acl=Path("etc/acl.yaml"),
        metrics="open",
        session_idle_ms=60_000,
        session_lifetime_ms=3_600_000,
    )
    # A token stands in place of a user.
    assert set(settings.origins) == set(FIELDS) - {"cluster.engine_token_file"}


def test_flags_beat_the_environment_which_beats_the_file() -> None:
    text = "log_level: debug\nhttp: 127.0.0.1:1\ndata: file\n"
    environment = {"SLUICE_HTTP": "127.0.0.1:2", "SLUICE_DATA": "variable"}
    settings = from_yaml(text, environment, data="flag", http=None, listen=[])
    assert (settings.log_level, settings.http.port, settings.data) == ("debug", 2, Path("flag"))
    assert settings.origins == {"log_level": "broker.yaml:1:1", "http": "SLUICE_HTTP", "data": "--data"}


def test_variables_and_flags_are_text() -> None:
    settings = load_settings(
        None,
        {
            "SLUICE_LIMITS_MAX_CONNECTIONS": "5",
            "SLUICE_AUTO_CREATE": "false",
            "SLUICE_LISTEN": "amqp://127.0.0.1:1, amqp://127.0.0.1:2",
            "SLUICE_FLOW_DEFAULT_FLOW_STOP_THRESHOLD": "90%",
            "SLUICE_LOG_LEVEL": "",
        },
        {"policies": (Path("p"),)},
    )
    assert settings.limits.max_connections == 5
    assert settings.auto_create is False
    assert [listener.port for listener in settings.listeners] == [1, 2]
    assert settings.flow.defaults.default_flow_stop_threshold == 90
    assert settings.policies == (Path("p"),)


def test_budgets_may_come_from_anywhere() -> None:
    """None is what the machine has to give; 0, no limit, is another thing."""
    settings = load_settings(None, {}, {})
    assert (settings.memory_limit, settings.store_limit, settings.temp_limit) == (None, None, None)
    assert settings.journal_file_size is None
    environment = {
        "SLUICE_MEMORY_LIMIT": "64MB",
        "SLUICE_STORE_LIMIT": "1 GB",
        "SLUICE_STORE_JOURNAL_FILE_SIZE": "2MB",
    }
    settings = from_yaml(
        "memory_limit: 1GB\nstore_limit: 5GB\n", environment, store_limit="0", temp_limit="7MB"
    )
    assert (settings.memory_limit, settings.store_limit, settings.temp_limit) == (64 * MB, 0, 7 * MB)
    assert settings.journal_file_size == 2 * MB
    assert settings.origins["temp_limit"] == "--temp-limit"


def test_the_command_line_has_a_flag_for_each_budget() -> None:
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    given = ["--memory-limit", "64MB", "--store-limit", "0", "--temp-limit", "1GB", "--data", "d"]
    settings = load_settings(None, {}, serve._flags(parser.parse_args(given)))
    assert (settings.memory_limit, settings.store_limit, settings.temp_limit) == (64 * MB, 0, 1024 * MB)
    assert settings.data == Path("d")
    assert load_settings(None, {}, serve._flags(parser.parse_args([]))) == Settings()


def test_the_command_line_has_qpidds_default_thresholds() -> None:
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)

    def flow_of(*words: str) -> BrokerDefaults:
        return load_settings(None, {}, serve._flags(parser.parse_args(words))).flow.defaults

    both = ("--default-flow-stop-threshold", "90", "--default-flow-resume-threshold", "75%")
    found = flow_of(*both)
    assert (found.default_flow_stop_threshold, found.default_flow_resume_threshold) == (90, 75)
    assert found.places["default_flow_stop_threshold"] == "--default-flow-stop-threshold"
    with pytest.raises(ConfigError, match=r"--default-flow-stop-threshold: .*from 0 to 100"):
        flow_of("--default-flow-stop-threshold", "101")
    with pytest.raises(ConfigError, match="is more than"):
        flow_of("--default-flow-stop-threshold", "60", "--default-flow-resume-threshold", "75")


def test_budgets_that_are_no_sizes_are_refused() -> None:
    text = "memory_limit: 40%\nstore: {journal_file_size: 512 KB}\n"
    assert complaints(text, {"SLUICE_TEMP_LIMIT": "much"}) == [
        "broker.yaml:1:15: memory_limit: expected a size such as 65536, 512 KB or 10 MB, not '40%'",
        "broker.yaml:2:28: journal_file_size: must be at least 1048576, not 524288",
        "SLUICE_TEMP_LIMIT: temp_limit: expected a size such as 65536, 512 KB or 10 MB, not 'much'",
    ]


@pytest.mark.parametrize("budget", ["memory_limit", "store_limit", "temp_limit"])
@pytest.mark.parametrize("value", ["5", "512", "1KB"])
def test_a_budget_that_no_message_fits_into_is_refused(budget: str, value: str) -> None:
    """As one gets who leaves the unit out."""
    with pytest.raises(OperatorError) as refusal:
        load_settings(None, {}, {budget: value})
    text = f"expected 0 for no limit, or at least 4 KB, not {parse_size(value)} bytes; a size takes a unit"
    assert f"--{budget.replace('_', '-')}: {budget}: {text}, as in 512 MB" == str(refusal.value)
    assert getattr(load_settings(None, {}, {budget: "4KB"}), budget) == 4096


def test_the_file_may_be_named_by_a_variable() -> None:
    Path("elsewhere.yaml").write_text("log_level: error\n")
    assert load_settings(None, {"SLUICE_CONFIG": "elsewhere.yaml"}, {}).log_level == "error"


@pytest.mark.parametrize(
    ("url", "listener"),
    [
        ("amqp://127.0.0.1:5672", Listener("127.0.0.1", 5672, True)),
        ("amqp://localhost", Listener("localhost", 5672, True)),
        ("amqp://[::1]:5671/", Listener("::1", 5671, True)),
        ("amqp://:0", Listener("0.0.0.0", 0, False)),
        ("amqp://broker.example:5672", Listener("broker.example", 5672, False)),
        ("amqp://0.0.0.0:5672?allow_plain=true", Listener("0.0.0.0", 5672, True)),
        ("amqp://127.0.0.1:5672?allow_plain=false", Listener("127.0.0.1", 5672, False)),
    ],
)
def test_listeners_allow_no_sasl_only_on_this_machine_or_when_told(url: str, listener: Listener) -> None:
    assert load_settings(None, {}, {"listen": [url]}).listeners == (listener,)
    jsonschema.validate({"listeners": [url]}, broker_schema())


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("127.0.0.1:5672", "expected amqp://host:port"),
        ("http://127.0.0.1:5672", "expected amqp://host:port"),
        ("amqp://::1:5672", "expected amqp://host:port"),
        ("amqp://127.0.0.1:5672?plain=true", "expected amqp://host:port"),
        ("amqp://[fe80]:1", "'fe80' in brackets is no IPv6 address"),
        ("amqp://127.0.0.1:65536", "port 65536 is beyond 65535"),
        ("amqpx://127.0.0.1:5671", "expected amqp://host:port"),
    ],
)
def test_other_listeners_are_refused(url: str, reason: str) -> None:
    assert complaints(listen=[url])[0].startswith(f"--listen: listeners: {reason}")


def test_tls_is_refused_without_its_files() -> None:
    assert complaints(listen=["amqps://127.0.0.1:5671"]) == [
        "--listen: amqps://127.0.0.1:5671 needs tls.certificate"
    ]
    assert complaints(http="https://127.0.0.1:8672")[0] == (
        "--http: https://127.0.0.1:8672 needs tls.certificate"
    )
    assert complaints("tls: {client_certificates: required}\n") == [
        "broker.yaml:1:7: client_certificates: required needs tls.client_ca"
    ]


def test_listeners_with_tls_have_a_port_of_their_own() -> None:
    text = """
listeners: [amqps://mq.example.org, "amqps://[::1]:1"]
http: https://127.0.0.1:8672
tls:
  certificate: a.pem
  min_version: 1.3
  client_ca: b.pem
  server_names:
    - {names: [Other.Example.org, "*.example.net"], certificate: c.pem, key: d.pem}
"""
    found = from_yaml(text)
    assert [str(each) for each in found.listeners] == ["amqps://mq.example.org:5671", "amqps://[::1]:1"]
    assert found.http.url == "https://127.0.0.1:8672"
    assert (found.tls.client_certificates, found.tls.min_version) == ("optional", "1.3")
    assert found.tls.identification == Identification(Path("a.pem"), Path("a.pem"))
    assert found.tls.server_names[0].names == ("other.example.org", "*.example.net")
    jsonschema.validate(yaml.safe_load(text), broker_schema())


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ("server_names: [{names: [a..b], certificate: c}]", "names: expected a name such as mq.example.org"),
        ("server_names: [{certificate: c}]", "names is missing"),
        ("server_names: [{names: [a], certificat: c}]", "unknown key 'certificat'"),
        ("user_from: email", "expected 'CN', 'subject', 'SAN email', 'SAN dns' or 'SAN uri', not 'email'"),
        ("min_version: 1.1", "expected 1.2 or 1.3, not 1.1"),
        ('ciphers: "a b;c"', "expected OpenSSL's list of ciphers"),
    ],
)
def test_other_settings_of_tls_are_refused(rows: str, reason: str) -> None:
    assert reason in complaints(f"tls:\n  certificate: a.pem\n  {rows}\n")[0]


def test_addresses_print_as_they_are_written() -> None:
    assert str(Listener("::1", 5672, True)) == "amqp://[::1]:5672"
    assert str(ListenAddress("127.0.0.1", 80)) == "127.0.0.1:80"


def test_all_that_is_wrong_is_told_at_once_with_its_place() -> None:
    text = """\
listners: [amqp://127.0.0.1:5672]
http: nowhere
limits:
  max_conections: 5
  max_frame_size: 511
auto_create: yes
flow: 5
log_level: loud
log_level: info
limits.max_links: 5
"""
    assert complaints(text, {"SLUICE_LIMITS_MAX_LINK": "1", "SLUICE_DATA": "d"}, polices="x", http="h") == [
        "broker.yaml:1:1: unknown key 'listners' (did you mean 'listeners'?)",
        "broker.yaml:2:7: http: expected host:port such as 127.0.0.1:8672 or [::1]:8672, not 'nowhere'",
        "broker.yaml:4:3: unknown key 'max_conections' (did you mean 'max_connections'?)",
        "broker.yaml:5:19: max_frame_size: must be at least 512, not 511",
        "broker.yaml:6:14: YAML reads a bare 'yes' as a truth value: "
        "write true or false, or put the word in quotes",
        "broker.yaml:7:7: expected the settings of 'flow'",
        "broker.yaml:8:12: log_level: expected 'debug', 'info', 'warning' or 'error', not 'loud'",
        "broker.yaml:9:1: duplicate key 'log_level' (first in line 8)",
        "broker.yaml:10:1: unknown key 'limits.max_links'",
        "SLUICE_LIMITS_MAX_LINK: unknown variable (did you mean 'SLUICE_LIMITS_MAX_LINKS'?)",
        "--polices: unknown key 'polices' (did you mean 'policies'?)",
        "--http: http: expected host:port such as 127.0.0.1:8672 or [::1]:8672, not 'h'",
    ]


def test_variables_that_orchestrators_add_are_no_misspelling() -> None:
    environment = {
        "SLUICE_PORT": "tcp://10.0.0.1:5672",
        "SLUICE_SERVICE_HOST": "10.0.0.1",
        "SLUICE_PURE": "1",
    }
    assert load_settings(None, environment, {}) == Settings()


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^nowhere\.yaml: cannot be read: No such file or directory$"):
        load_settings(Path("nowhere.yaml"), {}, {})


def test_percentages_that_contradict_each_other_are_refused() -> None:
    text = "flow:\n  default_flow_stop_threshold: 50%\n  default_flow_resume_threshold: 60%\n"
    assert complaints(text) == [
        "broker.yaml:3:3: default_flow_resume_threshold 60 is more than "
        "default_flow_stop_threshold 50 (broker.yaml:2:3)"
    ]


@pytest.mark.parametrize(
    ("text", "stop", "resume"),
    [
        ("default_flow_stop_threshold: 50", 50, 50),
        ("default_flow_stop_threshold: 90", 90, 70),
        ("default_flow_stop_threshold: 0", 0, 0),
        ("default_flow_resume_threshold: 90", 90, 90),
        ("default_flow_resume_threshold: 0", 80, 0),
    ],
)
def test_a_default_percentage_gives_way_to_the_one_that_is_set(text: str, stop: int, resume: int) -> None:
    defaults = from_yaml(f"flow: {{{text}}}").flow.defaults
    assert (defaults.default_flow_stop_threshold, defaults.default_flow_resume_threshold) == (stop, resume)


def test_the_default_first_credit_gives_way_to_a_smaller_window() -> None:
    assert from_yaml("flow: {producer_window: 10}").flow.defaults.initial_credit == 10


@pytest.mark.parametrize("text", ["- a\n", "word\n", "5\n"])
def test_a_file_that_is_no_mapping_is_refused(text: str) -> None:
    assert complaints(text) == ["broker.yaml:1:1: expected a mapping of settings"]


# The schema and the reference come from the same table


def test_the_schema_takes_the_shipped_file() -> None:
    schema = broker_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(yaml.safe_load((ROOT / "etc" / "broker.yaml").read_text()), schema)
    jsonschema.validate(None, schema)


@pytest.mark.parametrize(
    "wrong",
    [
        {"listners": []},
        {"listeners": []},
        {"listeners": ["http://x:1"]},
        {"http": "nowhere"},
        {"websocket_origins": ["https://console.example.org/"]},
        {"websocket_origins": ["console.example.org"]},
        {"limits": {"max_connections": "many"}},
        {"limits": {"max_frame_size": 511}},
        {"limits": {"max_conections": 5}},
        {"flow": {"default_flow_stop_threshold": "101%"}},
        {"flow": {"max_size": "10 TB"}},
        {"log_level": "loud"},
        {"memory_limit": "40%"},
        {"store": {"journal_file_size": 5}},
        {"store": {"journal_size": "2MB"}},
        [],
    ],
)
def test_schema_and_parser_refuse_the_same(wrong: Any) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, broker_schema())
    assert complaints(yaml.safe_dump(wrong))


def test_the_reference_has_a_row_for_every_setting() -> None:
    rows = broker_reference().splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == list(FIELDS)
