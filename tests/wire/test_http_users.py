"""Who may ask over HTTP, where there are users: passwords, tokens, logins, rights, and who is kept out."""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from broker.http.api.application import build
from broker.security.users import User
from broker.security.usersfile import changing
from tests.wire import people, web
from tests.wire.apiclient import Answered, Api, quoted
from tests.wire.conftest import START_SECONDS, RunningBroker, StartBroker, wait_until
from tests.wire.frames import (
    AMQP_HEADER,
    OPEN,
    SASL_HEADER,
    SASL_INIT,
    SASL_OUTCOME,
    Symbol,
    performative,
)
from tests.wire.people import basic

pytestmark = pytest.mark.wire

FAST = "  longest_pause: 0\n"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One broker with users and rules; nobody here is slowed down by what others guess."""
    folder = tmp_path_factory.mktemp("users")
    broker = RunningBroker(folder / "broker", people.settings_for(folder, more=FAST), "", ())
    api = Api(broker)
    for name in ("orders.a", "stock.a"):
        assert api.call("POST", "/queues", {"name": name}, basic("alice")).status == 201
    yield broker
    broker.stop()
    assert "Traceback" not in broker.log, broker.log
    for secret in ("wonder land", "reads, only", "Basic ", "sluice-session"):
        assert secret not in broker.log


@pytest.fixture
def api(served: RunningBroker) -> Api:
    return Api(served)


def login(
    api: Api, user: str, password: str | None = None, headers: dict[str, str] | None = None
) -> Answered:
    given = {"user": user, "password": people.PASSWORDS[user] if password is None else password}
    return api.call("POST", "/session", given, headers)


def cookie(answered: Answered) -> dict[str, str]:
    """What a browser says from then on."""
    return {"Cookie": answered.headers["set-cookie"].partition(";")[0]}


# --- nobody is let in unknown


OPERATIONS = [
    (path, verb)
    for path, verbs in build().openapi()["paths"].items()
    for verb in verbs
    if path != "/api/v1/session"
]


@pytest.mark.parametrize(("path", "verb"), OPERATIONS)
def test_every_request_needs_somebody(api: Api, path: str, verb: str) -> None:
    place = path.removeprefix("/api/v1").replace("{", "").replace("}", "")
    answered = api.call(verb.upper(), place, {}, None)
    assert answered.status == 401
    assert answered.headers["www-authenticate"] == 'Basic realm="sluice", charset="UTF-8"'
    assert "say who you are" in answered.error


@pytest.mark.parametrize("place", ["/openapi.json", "/docs", "/docs/docs.js", "/nothing", "/session"])
def test_nor_is_anything_else_of_the_api_shown(api: Api, place: str) -> None:
    assert api.call("GET", place).status == 401
    assert api.call("GET", place, headers=basic("zoë")).status in (200, 404)


def test_health_is_open_and_so_are_metrics_on_loopback(served: RunningBroker) -> None:
    pages = Api(served, "")
    for path in ("/healthz", "/readyz", "/metrics", "/", "/console/main.js"):
        assert pages.call("GET", path).status == 200


@pytest.mark.parametrize(
    "said",
    [
        "Basic",
        "Basic !!!",
        "Basic YWxpY2U=",
        "Basic OnB3",
        "Basic /////w==",
        "Bearer x.y.z",
        "Digest username=alice",
        "",
        "basic",
    ],
)
def test_what_is_no_credential_is_none(api: Api, said: str) -> None:
    answered = api.call("GET", "/queues", headers={"Authorization": said})
    assert answered.status in (400, 401)
    assert answered.body["error"]


@pytest.mark.parametrize("user", ["alice", "nobody", "", "alice ", "ALICE", "anonymous", "alice\0"])
@pytest.mark.parametrize("password", ["", "wrong", "wonder land ", "x" * 5000])
def test_a_wrong_password_and_an_unknown_user_are_told_alike(api: Api, user: str, password: str) -> None:
    answered = api.call("GET", "/queues", headers=basic(user, password))
    assert answered.status in (400, 401)
    if user and "\0" not in user:
        assert (answered.status, answered.error) == (401, "this user and password are not known here")


def test_a_user_with_a_password_is_known(api: Api) -> None:
    for user in people.PASSWORDS:
        who = api.call("GET", "/session", headers=basic(user)).body
        assert (who["user"], who["by"], who["logins"]) == (user, "password", True)
        assert set(who["groups"]) == people.GROUPS.get(user, frozenset())


def test_a_page_that_asks_is_not_answered_with_a_dialog_of_the_browser(api: Api) -> None:
    for header in (
        {"X-Requested-With": "console"},
        {"Accept": "text/event-stream"},
        {"Sec-Fetch-Dest": "empty"},
    ):
        answered = api.call("GET", "/broker", headers=header)
        assert (answered.status, answered.headers["www-authenticate"]) == (401, 'Session realm="sluice"')


def test_a_token_of_the_issuer_is_believed_and_no_other(start_broker: StartBroker, tmp_path: Path) -> None:
    key, stranger = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
    public = {**jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": "one"}
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [public]}))
    more = (
        f"  oauth_issuer: https://issuer.example\n  oauth_audience: [sluice]\n"
        f"  oauth_jwks: {tmp_path / 'jwks.json'}\n" + FAST
    )
    broker = start_broker(people.settings_for(tmp_path, more=more))
    api = Api(broker)

    def asked(signed_by: Any = key, **more: object) -> Answered:
        claims = {"iss": "https://issuer.example", "aud": "sluice", "sub": "tess", "groups": ["operators"]}
        token = jwt.encode(claims | {"exp": time.time() + 60} | more, signed_by, "RS256", {"kid": "one"})
        return api.call("GET", "/session", headers={"Authorization": f"Bearer {token}"})

    who = asked().body
    assert (who["user"], who["groups"], who["by"]) == ("tess", ["operators"], "token")
    assert set(who["may"].values()) == {""}
    for refused in (
        asked(stranger),
        asked(exp=time.time() - 3600),
        asked(iss="https://stranger.example"),
        asked(aud="another"),
        asked(sub=""),
    ):
        assert (refused.status, refused.error) == (401, "this token is not valid here")
        assert "Bearer" in refused.headers["www-authenticate"]
    settings = broker.config_file.read_text()
    broker.config_file.write_text(settings.replace(FAST, GUESSES))
    broker.signal(signal.SIGHUP)
    broker.wait_for_log("reloaded")
    statuses = [asked(stranger).status for _ in range(6)]
    assert statuses[-1] == 429
    delayed = asked()
    assert (delayed.status, "retry-after" in delayed.headers) == (429, True)
    long = api.call("GET", "/session", headers={"Authorization": "Bearer " + "x" * 13_000})
    assert (long.status, long.error) == (401, "this token is too long")
    assert "eyJ" not in broker.log


def test_passwords_that_could_be_read_on_the_way_are_not_taken(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    settings = people.settings_for(tmp_path, more=FAST)
    own = next((each for each in addresses() if not each.startswith("127.")), None)
    if own is None:
        pytest.skip("this machine has no address but its loopback")
    for more, status in (("", 403), ("  plain_without_tls: true\n", 200)):
        broker = start_broker(settings + more, args=("--http", "0.0.0.0:0"))
        connection = HTTPConnection(own, broker.http_port, timeout=START_SECONDS)
        connection.request("GET", "/api/v1/broker", headers=basic("alice"))
        answered = connection.getresponse()
        assert answered.status == status, answered.read()
        connection.close()
        assert Api(broker).call("GET", "/broker", headers=basic("alice")).status == 200


def addresses() -> list[str]:
    """Of this machine, those it would send from."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
        except OSError:
            return []
        return [probe.getsockname()[0]]


# --- rights


def test_rights_decide_and_the_reason_is_told(api: Api) -> None:
    assert api.call("GET", "/queues/stock.a", headers=basic("rita")).status == 200
    for user, method, place, body in (
        ("rita", "POST", "/queues", {"name": "new"}),
        ("rita", "DELETE", "/queues/stock.a", None),
        ("rita", "PATCH", "/queues/stock.a", {"max_count": 1}),
        ("rita", "POST", "/queues/stock.a/purge", {}),
        ("rita", "POST", "/queues/stock.a/move", {"target": "orders.a"}),
        ("rita", "GET", "/queues/stock.a/messages", None),
        ("rita", "POST", "/producers/stop", {"target": None}),
        ("rita", "POST", "/reload", {}),
        ("rita", "PUT", "/log-levels", {"levels": {"sluice.amqp": "debug"}}),
        ("otto", "GET", "/queues/stock.a", None),
        ("otto", "GET", "/broker", None),
        ("otto", "GET", "/live", None),
        ("otto", "POST", "/queues/orders.a/move", {"target": "stock.a"}),
        ("zoë", "GET", "/queues/orders.a", None),
    ):
        answered = api.call(method, place, body, basic(user))
        assert (answered.status, "may not" in answered.error) == (403, True), (user, method, place, answered)
        assert user in answered.error
    assert api.call("POST", "/queues/orders.a/purge", {}, basic("otto")).status == 200


@pytest.mark.parametrize(("path", "verb"), OPERATIONS)
def test_who_has_no_right_gets_nothing_of_any_request(api: Api, path: str, verb: str) -> None:
    place = path.removeprefix("/api/v1").replace("{name}", "orders.a").replace("{address}", "orders.a")
    bodies: dict[str, object] = {
        "/queues": {"name": "x"},
        "/topics": {"name": "x"},
        "/bindings": {"source": "x", "target": "orders.a"},
        "/bridges": {"from": "x", "to": "orders.a"},
        "/queues/{name}/move": {"target": "orders.a"},
        "/queues/{name}/groups/reset": {"group": "g"},
        "/policies/apply": {"text": "policies: []"},
        "/effect": {"name": "orders.a"},
        "/log-levels": {"levels": {}},
        "/trace": {"connection": "c1"},
        "/producers/stop": {"target": "orders.a"},
        "/producers/start": {"target": "orders.a"},
    }
    body = bodies.get(path.removeprefix("/api/v1"), {}) if verb != "get" else None
    answered = api.call(
        verb.upper(), place.replace("{id}", "c1").replace("{number}", "1"), body, basic("zoë")
    )
    if answered.status == 200:
        shown = answered.body.get("items", answered.body.get("answers"))
        assert shown == [], answered
    else:
        assert (answered.status, "may not" in answered.error) == (403, True), answered


def test_lists_hold_what_may_be_seen(api: Api) -> None:
    def names(user: str) -> list[str]:
        listed = api.call("GET", "/queues?fields=name", headers=basic(user))
        assert listed.status == 200
        return [row["name"] for row in listed.body["items"]]

    assert names("alice") == names("rita") == ["orders.a", "stock.a"]
    assert names("otto") == ["orders.a"]
    assert names("zoë") == []


def test_what_one_may_do_can_be_asked(api: Api) -> None:
    may = api.call("GET", "/session?address=orders.b", headers=basic("rita")).body["may"]
    assert may["manage-read"] == ""
    assert "rita" in may["purge"]
    assert "orders.b" in may["purge"]
    may = api.call("GET", "/session?address=orders.b", headers=basic("otto")).body["may"]
    assert set(may.values()) == {""}
    assert api.call("GET", "/session", headers=basic("otto")).body["may"]["manage-write"]


# --- logins


def test_a_login_from_beginning_to_end(api: Api, served: RunningBroker) -> None:
    begun = login(api, "alice")
    assert (begun.status, begun.body["user"], begun.body["by"]) == (200, "alice", "session")
    said = begun.headers["set-cookie"]
    name, _, rest = said.partition("=")
    token, *attributes = rest.split("; ")
    assert name == f"sluice-session-{served.http_port}"
    assert len(token) >= 43
    assert attributes == ["Path=/", "HttpOnly", "SameSite=Strict"]
    assert begun.headers["cache-control"] == "no-store"
    session = cookie(begun)
    assert api.call("GET", "/session", headers=session).body["by"] == "session"
    assert api.call("POST", "/queues/stock.a/purge", {}, session).status == 200
    ended = api.call("DELETE", "/session", headers=session)
    assert ended.status == 204
    assert "Max-Age=0" in ended.headers["set-cookie"]
    assert api.call("GET", "/session", headers=session).status == 401
    assert api.call("DELETE", "/session", headers=session).status == 204


def test_a_wrong_password_begins_nothing(api: Api) -> None:
    for user in ("alice", "nobody"):
        refused = login(api, user, "wrong")
        assert (refused.status, refused.error) == (401, "this user and password are not known here")
        assert "set-cookie" not in refused.headers


def test_a_session_cant_be_fixed_beforehand_and_a_login_ends_the_one_before(
    api: Api, served: RunningBroker
) -> None:
    planted = {"Cookie": f"sluice-session-{served.http_port}={'A' * 43}"}
    begun = login(api, "alice", headers=planted)
    assert "A" * 43 not in begun.headers["set-cookie"]
    assert api.call("GET", "/session", headers=planted).status == 401
    first = cookie(begun)
    second = cookie(login(api, "rita", headers=first))
    assert first != second
    assert api.call("GET", "/session", headers=first).status == 401
    assert api.call("GET", "/session", headers=second).body["user"] == "rita"


def test_a_cookie_says_where_it_belongs(api: Api, served: RunningBroker) -> None:
    origin = {"Origin": f"https://127.0.0.1:{served.http_port}"}
    said = login(api, "alice", headers=origin).headers["set-cookie"]
    assert said.startswith(f"__Host-sluice-session-{served.http_port}=")
    assert said.endswith("; Path=/; HttpOnly; SameSite=Strict; Secure")
    assert "Domain" not in said


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://stranger.example.org"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "stranger.example.org"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content-Type": "multipart/form-data; boundary=x"}, 415),
    ],
)
def test_a_page_of_strangers_rides_on_no_session(api: Api, headers: dict[str, str], status: int) -> None:
    session = cookie(login(api, "alice"))
    answered = api.call("POST", "/queues/stock.a/purge", {}, session | headers)
    assert answered.status == status, answered


def test_no_stranger_logs_a_browser_in(api: Api) -> None:
    for headers in ({"Origin": "https://stranger.example.org"}, {"Content-Type": "text/plain"}):
        refused = login(api, "alice", headers=headers)
        assert refused.status in (403, 415)
        assert "set-cookie" not in refused.headers


def test_a_login_is_a_user_and_a_password(api: Api) -> None:
    for body in ({}, {"user": "alice"}, {"user": "", "password": "x"}, {"user": ["alice"], "password": "x"}):
        assert api.call("POST", "/session", body).status == 422
    assert api.call("POST", "/session", raw=b'{"user": "alice", "password": "' + b"x" * 9000).status == 413


# --- ends, and times


def test_sessions_end_by_themselves(start_broker: StartBroker, tmp_path: Path) -> None:
    # A session that is used at all must be used in time, however slowly this process is run.
    more = "  session_idle: 6s\n  session_lifetime: 8s\n" + FAST
    api = Api(start_broker(people.settings_for(tmp_path, more=more)))
    idle = cookie(login(api, "alice"))
    # Before the broker's own time begins: it may be a while until its answer is here.
    begun = time.monotonic()
    used = cookie(login(api, "alice"))

    def is_over(session: dict[str, str]) -> bool:
        return api.call("GET", "/session", headers=session).status == 401

    while not is_over(used):
        assert time.monotonic() - begun < 30
        time.sleep(0.05)
    assert time.monotonic() - begun >= 7.9
    assert is_over(idle)


def test_a_changed_password_and_a_deleted_user_end_what_was_begun(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker(people.settings_for(tmp_path, more=FAST))
    api = Api(broker)
    alice, rita, otto = (cookie(login(api, user)) for user in ("alice", "rita", "otto"))
    assert api.call("GET", "/broker", headers=basic("alice")).status == 200
    with changing(tmp_path / "users") as file:
        people.give(file, "alice", "another")
        del file.users["rita"]
    broker.signal(signal.SIGHUP)
    wait_until(lambda: api.call("GET", "/broker", headers=basic("alice")).status == 401, 10, "a reload")
    assert api.call("GET", "/session", headers=alice).status == 401
    assert api.call("GET", "/session", headers=rita).status == 401
    assert api.call("GET", "/session", headers=otto).body["user"] == "otto"
    assert api.call("GET", "/broker", headers=basic("alice", "another")).status == 200


def test_a_stream_ends_with_its_session(api: Api, served: RunningBroker) -> None:
    session = cookie(login(api, "rita"))
    connection = HTTPConnection("127.0.0.1", served.http_port, timeout=START_SECONDS)
    connection.request("GET", "/api/v1/live", headers=session)
    stream = connection.getresponse()
    assert stream.status == 200
    assert stream.readline().startswith(b"retry")
    assert api.call("DELETE", "/session", headers=session).status == 204
    assert b"event: broker" in stream.read()
    connection.close()


@contextmanager
def watching(broker: RunningBroker, headers: dict[str, str]) -> Iterator[HTTPResponse]:
    """A stream of live figures, once the first are there."""
    with closing(HTTPConnection("127.0.0.1", broker.http_port, timeout=START_SECONDS)) as connection:
        connection.request("GET", "/api/v1/live", headers=headers)
        with connection.getresponse() as stream:
            assert stream.status == 200
            assert event(stream) == "broker"
            yield stream


def event(stream: HTTPResponse) -> str:
    """The next one's kind; empty at the end."""
    for line in stream:
        if line.startswith(b"event: "):
            return line.removeprefix(b"event: ").decode().strip()
    return ""


def until(stream: HTTPResponse, kind: str) -> None:
    """Some events may have been on their way."""
    for _ in range(10):
        if event(stream) == kind:
            return
    raise AssertionError(f"ten events, and none is {kind!r}")


def test_a_stream_shows_what_its_user_may_see_by_now(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker(people.settings_for(tmp_path, people.RULES + "  - allow: connect\n", FAST))
    session = cookie(login(Api(broker), "rita"))
    with watching(broker, basic("rita")) as by_password, watching(broker, session) as by_session:
        with changing(tmp_path / "users") as file:
            file.users["rita"] = User("rita", file.users["rita"].verifiers, frozenset())
        broker.signal(signal.SIGHUP)
        for stream in (by_password, by_session):
            until(stream, "silent")
            assert event(stream) == "silent"


def test_a_strangers_stream_ends_when_there_are_users(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker()
    with watching(broker, {}) as stream:
        broker.config_file.write_text(people.settings_for(tmp_path, rules=""))
        broker.signal(signal.SIGHUP)
        until(stream, "")
    assert Api(broker).call("GET", "/broker").status == 401


def test_who_may_not_connect_may_nothing_over_http(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker(people.settings_for(tmp_path, more=FAST + "  metrics: authenticated\n"))
    api = Api(broker)
    session = cookie(login(api, "alice"))
    with watching(broker, session) as stream:
        barred = "rules:\n  - deny: connect\n    users: [alice]\n"
        (tmp_path / "acl.yaml").write_text(barred + people.RULES.removeprefix("rules:\n"))
        broker.signal(signal.SIGHUP)
        until(stream, "")
    for headers in (basic("alice"), session):
        for method, place, body in (
            ("GET", "/session", None),
            ("GET", "/openapi.json", None),
            ("GET", "/live", None),
            ("POST", "/queues", {"name": "alices"}),
        ):
            refused = api.call(method, place, body, headers)
            assert (refused.status, refused.body) == (403, BARRED), place
    assert Api(broker, "").call("GET", "/metrics", headers=basic("alice")).status == 403
    again = login(api, "alice")
    assert (again.status, again.body) == (403, BARRED)
    assert "set-cookie" not in again.headers
    assert api.call("GET", "/broker", headers=basic("rita")).status == 200


BARRED = {"error": "user 'alice' may not connect to this virtual host, the common one"}


def test_nobody_may_not_connect_either(start_broker: StartBroker, tmp_path: Path) -> None:
    rules = "rules:\n  - deny: connect\n    users: [anonymous]\n"
    (tmp_path / "alone.yaml").write_text(rules)
    alone = Api(start_broker(f"security: {{acl: {tmp_path / 'alone.yaml'}}}\n"))
    refused = alone.call("POST", "/queues", {"name": "mine"})
    assert (refused.status, "'anonymous' may not connect" in refused.error) == (403, True)
    # Where there are users, whoever hasn't said so may be one.
    more = "  allow_anonymous: true\n"
    among = Api(start_broker(people.settings_for(tmp_path, rules + people.RULES[7:], more)))
    asked = among.call("POST", "/queues", {"name": "mine"})
    assert (asked.status, "'anonymous' may not connect" in asked.error) == (401, True)
    assert among.call("POST", "/queues", {"name": "mine"}, basic("alice")).status == 201


# The pause outlasts the requests that must meet it, however slow the machine.
GUESSES = "  free_attempts: 3\n  first_pause: 30s\n  longest_pause: 60s\n"


def test_who_guesses_has_to_wait_and_who_knows_has_not(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker(people.settings_for(tmp_path, more=GUESSES))
    api = Api(broker)
    assert api.call("GET", "/broker", headers=basic("alice")).status == 200
    statuses = [api.call("GET", "/broker", headers=basic("alice", str(n))).status for n in range(6)]
    assert statuses[:3] == [401, 401, 401]
    assert 429 in statuses
    blocked = login(api, "rita")
    assert blocked.status == 429
    assert int(blocked.headers["retry-after"]) >= 1
    assert "wait" in blocked.error
    # What was right a moment ago needs no other check.
    assert api.call("GET", "/broker", headers=basic("alice")).status == 200
    broker.wait_for_log("wrong password for alice")


def test_a_guesser_who_has_to_wait_learns_of_no_password_in_use(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker(people.settings_for(tmp_path, more=GUESSES))
    api, guesser = Api(broker), Api(broker, source="127.0.0.2")
    assert api.call("GET", "/broker", headers=basic("alice")).status == 200
    statuses = [guesser.call("GET", "/broker", headers=basic("alice", str(n))).status for n in range(5)]
    assert statuses[-1] == 429
    assert guesser.call("GET", "/broker", headers=basic("alice")).status == 429
    assert api.call("GET", "/broker", headers=basic("alice")).status == 200


# --- metrics, the log, the document


def test_metrics_are_for_who_may_see_the_broker(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker(people.settings_for(tmp_path, more="  metrics: authenticated\n" + FAST))
    pages = Api(broker, "")
    login(Api(broker), "rita")
    refused = pages.call("GET", "/metrics")
    assert (refused.status, refused.headers["content-type"]) == (401, "text/plain; charset=utf-8")
    shown = pages.call("GET", "/metrics", headers=basic("rita"))
    assert shown.status == 200
    assert b'sluice_http_answers_total{status="401"} 1\n' in shown.body
    assert b"sluice_http_sessions 1\n" in shown.body
    assert pages.call("GET", "/metrics", headers=basic("otto")).status == 403
    assert pages.call("GET", "/metrics", headers=basic("rita", "no")).status == 401
    assert pages.call("GET", "/healthz").status == 200
    settings = broker.config_file.read_text()
    broker.config_file.write_text(settings.replace("metrics: authenticated", "metrics: open"))
    broker.signal(signal.SIGHUP)
    wait_until(lambda: pages.call("GET", "/metrics").status == 200, 10, "the new settings")


def test_the_log_says_who_did_what(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = start_broker(people.settings_for(tmp_path, more=FAST) + "log_format: json\n")
    api = Api(broker)
    session = cookie(login(api, "alice"))
    odd = "a/b \u202e"
    api.call("POST", "/queues", {"name": odd}, session)
    api.call("DELETE", f"/queues/{quoted(odd)}?password=secret", headers=session)
    api.call("GET", "/queues?token=secret", headers=session)
    api.call("GET", "/queues")
    wait_until(lambda: broker.log.count("sluice.http.access") >= 4, 10, "the access log")
    lines = [json.loads(line) for line in broker.lines if '"sluice.http.access"' in line]
    told = [(each.get("user"), each["method"], each["path"], each["status"]) for each in lines]
    assert ("alice", "POST", "/api/v1/queues", 201) in told
    assert ("alice", "DELETE", "/api/v1/queues/a%2Fb%20%E2%80%AE", 204) in told
    assert ("anonymous", "GET", "/api/v1/queues", 401) in told
    assert "alice has logged in" in broker.log
    for secret in ("secret", session["Cookie"].partition("=")[2], "wonder land", "\u202e"):
        assert secret not in broker.log


def test_the_document_says_what_a_request_is_known_by(api: Api) -> None:
    found = api.call("GET", "/openapi.json", headers=basic("rita")).body
    assert set(found["components"]["securitySchemes"]) == {"password", "token", "session"}
    assert {} in found["security"]
    for path, verbs in found["paths"].items():
        for verb, each in verbs.items():
            assert {"401", "403"} <= each["responses"].keys(), (path, verb)
    assert found["paths"]["/api/v1/session"]["post"]["security"] == [{}]


# --- AMQP over WebSocket


def test_a_websocket_lets_nobody_in_who_does_not_say_who(served: RunningBroker) -> None:
    with web.WebPeer(served) as peer:
        peer.send(SASL_HEADER, performative(SASL_INIT, Symbol("ANONYMOUS"), kind=1))
        assert peer.read_bytes(8) == SASL_HEADER
        assert peer.expect(SASL_OUTCOME).fields[0] == 1
        peer.await_end()
    with web.WebPeer(served) as peer:
        peer.send(AMQP_HEADER, performative(OPEN, "raw"))
        assert peer.read_bytes(8) == SASL_HEADER
        peer.await_end()
