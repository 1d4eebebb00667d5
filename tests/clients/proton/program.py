"""The commands of ../README.md, for any scene."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from proton import SASL, ConnectionException, Message, ProtonException, SSLDomain, symbol, ulong
from proton.utils import BlockingConnection

from tests.clients.proton.features import FEATURES
from tests.clients.proton.notation import python_of, value_of
from tests.clients.proton.scene import Failure, NotApplicable, Scene
from tests.clients.proton.soak import soak

FEATURE_S = 20.0
# A Scene; what the programs make has its own kinds of links.
MakeScene = Callable[[], Any]


def say(**line: Any) -> None:
    """One line of the answer."""
    print(json.dumps(line), flush=True)


def main(make_scene: MakeScene, lacks: dict[str, str]) -> None:
    """``lacks`` says which features the library's style can't do, and why."""
    command, *words = sys.argv[1:]
    if command == "features":
        for name in words[1:]:
            result, why = _within_time(make_scene, name, words[0], lacks)
            say(feature=name, result=result, why=why)
    elif command == "send-types":
        send_types(make_scene(), words[0], Path(words[1]))
    elif command == "receive-types":
        receive_types(make_scene(), words[0], int(words[1]))
    elif command == "login":
        say(**login(os.environ["LOGIN_USER"], os.environ["LOGIN_PASSWORD"], *words))
    elif command == "soak":
        say(done=soak(make_scene, words[0], float(words[1]), int(words[2])))
    else:
        sys.exit(f"unknown command {command}")


def login(user: str, password: str, mechanism: str, address: str = "") -> dict[str, str]:
    """Whether the broker lets us in by that mechanism, and takes a message to an address if one is given."""
    if mechanism not in ("PLAIN", "ANONYMOUS", "EXTERNAL") and not SASL.extended():
        return {"login": "n/a", "why": f"Proton without Cyrus has no {mechanism}"}
    who: dict[str, Any] = (
        {} if mechanism in ("ANONYMOUS", "EXTERNAL") else {"user": user, "password": password}
    )
    try:
        connection = BlockingConnection(
            os.environ["URL"], timeout=15, ssl_domain=_trusting(), allowed_mechs=mechanism, **who
        )
    except ConnectionException as fault:
        return {"login": "refused", "why": str(fault)}
    came = {"login": "accepted", "why": ""}
    if address:
        try:
            connection.create_sender(address).send(Message("hello"))
            came["send"] = "accepted"
        except ProtonException as fault:
            came |= {"send": "refused", "why": str(fault)}
    connection.close()
    return came


def _trusting() -> SSLDomain | None:
    """TLS by the environment's CA and, if there is one, CERT, a certificate with its key."""
    if "CA" not in os.environ:
        return None
    domain = SSLDomain(SSLDomain.MODE_CLIENT)
    domain.set_trusted_ca_db(os.environ["CA"])
    domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
    if os.environ.get("CERT"):
        domain.set_credentials(os.environ["CERT"], os.environ["CERT"], None)
    return domain


def _within_time(make_scene: MakeScene, name: str, prefix: str, lacks: dict[str, str]) -> tuple[str, str]:
    if name in lacks:
        return "n/a", lacks[name]
    answer: list[tuple[str, str]] = []

    def run() -> None:
        scene = make_scene()
        try:
            FEATURES[name](scene, prefix)
            answer.append(("pass", ""))
        except NotApplicable as reason:
            answer.append(("n/a", str(reason)))
        except Failure as fault:
            answer.append(("fail", str(fault)))
        except Exception as fault:  # noqa: BLE001 - whatever the library raises is this feature's
            answer.append(("fail", f"{type(fault).__name__}: {fault}"))
        finally:
            with suppress(Exception):
                scene.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(FEATURE_S)
    return answer[0] if answer else ("fail", f"not done after {FEATURE_S:.0f} s")


def send_types(scene: Scene, address: str, file: Path) -> None:
    """A message for each case."""
    sender = scene.open().sender(address)
    for case in json.loads(file.read_text()):
        value = python_of(case["value"])
        message: Any = Message(subject=case["name"])
        section = case["section"]
        if value is None and section == "value":
            say(name=case["name"], result="n/a", why="Message takes a body of None for no body at all")
            continue
        if section in ("value", "data", "sequence"):
            message.body = value
            message.inferred = section != "value"
        elif section == "application-properties":
            message.properties = {"k": value}
        elif section == "message-annotations":
            message.annotations = {symbol("k"): value}
        elif section == "footer":
            say(name=case["name"], result="n/a", why="Message has no footer")
            continue
        elif section == "message-id":
            message.id = value
        else:
            message.correlation_id = value
        if not sender.send(message):
            raise Failure(f"{case['name']} was not accepted")
        say(name=case["name"], result="sent")
    scene.close()


def receive_types(scene: Scene, address: str, count: int) -> None:
    """What each message carries, by its name's section."""
    receiver = scene.open().receiver(address, credit=count)
    for _ in range(count):
        message = receiver.next()
        if message is None:
            raise Failure("a message is missing")
        receiver.settle("accepted")
        name = str(message.subject)
        if name.startswith("footer-"):
            say(name=name, result="n/a", why="Message has no footer")
        else:
            say(name=name, value=value_of(_carried(name, message)))
    scene.close()


def _carried(name: str, message: Any) -> Any:
    if name.startswith("property-"):
        return message.properties["k"]
    if name.startswith("message-annotations-"):
        return message.annotations[symbol("k")]
    if name.startswith(("message-id-", "correlation-id-")):
        found = message.id if name.startswith("message-id-") else message.correlation_id
        # An id that is a number is a ulong (AMQP 1.0 §3.2.11); the library gives a plain int.
        return ulong(found) if isinstance(found, int) else found
    return message.body
