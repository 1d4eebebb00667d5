"""Show a replicated cell as any of its members sees it, or have another member own it; or, where a broker has
several cells (serve --cells), move a queue from one to another.

The member is asked over HTTP, where it answers also while the cell has no owner. A standby whose HTTP port
has TLS, or can be reached from elsewhere, passes the question on to the owner, who asks for a login as for
anything else. Its port for members (cluster.listen) answers plain HTTP itself.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urlsplit

from broker.cli.main import UsageError
from broker.cli.terminal import arguments, table
from broker.cli.terminal.printable import printable
from broker.errors import OperatorError

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_HTTP = "http://127.0.0.1:8672"
VARIABLE = "SLUICE_HTTP"
PLACE = "/api/v1/cluster"
TIMEOUT_S = 10.0
# Of a queue's move: how long consumers may take, and how often it is asked how far it is.
WAIT_S = 10
LOOK_S = 0.1
MOST_BYTES = 1 << 20
EXAMPLES = (
    ("sluice cluster status", "the owner, the standbys and how far they are behind"),
    ("sluice cluster status --http http://10.0.0.2:8672 --json", "as another member sees it, for a program"),
    ("sluice cluster move", "have the standby that has come farthest own the cell"),
    ("sluice cluster move b", "have b own it"),
    ("sluice cluster move b --cell 2", "with serve --cells: have b own cell 2"),
    ("sluice cluster move orders 2", "with serve --cells: have cell 2 keep the queue orders from now on"),
)
OF_CELLS = (
    table.number("cell", "number"),
    table.text("log", "cell"),
    table.text("owner", "owner"),
    table.number("epoch", "epoch"),
)
COLUMNS = (
    table.text("member", "name"),
    table.text("role", "role"),
    table.number("applied", "applied"),
    table.number("groups behind", "lag_groups"),
    table.number("seconds behind", "lag_s"),
    table.number("heard of", "seen"),
    table.text("version", "version"),
    table.text("addresses", "addresses"),
    table.text("fault", "fault"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verb's own arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="status|move")
    shows = "show the owner, the members and the log"
    status = actions.add_parser("status", help=shows, description=shows)
    _add_cell(status)
    _add_http(status)
    arguments.add_json(status)
    moves = "have another member own the cell, or another cell a queue; clients connect again"
    move = actions.add_parser("move", help=moves, description=moves)
    move.add_argument(
        "member",
        nargs="?",
        default="",
        metavar="MEMBER|QUEUE",
        help="the standby, else the best one; or a queue",
    )
    move.add_argument(
        "cell", nargs="?", type=arguments.natural, metavar="CELL", help="the number of the queue's new cell"
    )
    move.add_argument(
        *("-b", "--broker"),
        metavar="URL",
        type=arguments.with_login,
        default=os.environ.get("SLUICE_BROKER", arguments.DEFAULT_BROKER),
        help=f"of a queue: amqp[s]://[user:password@]host[:port] (default: SLUICE_BROKER, else"
        f" {arguments.DEFAULT_BROKER})",
    )
    move.add_argument(
        "--wait",
        type=arguments.natural,
        default=WAIT_S,
        metavar="SECONDS",
        help=f"how long consumers of a queue may take to settle what they hold ({WAIT_S})",
    )
    _add_cell(move)
    _add_http(move)
    arguments.add_json(move)


def run(args: argparse.Namespace) -> int:
    """A table of members, the member that the cell goes to, or the queue that is in another cell."""
    if args.action == "move" and args.cell is not None:
        return _move_queue(args)
    url = _url(args.http)
    query = "" if args.of is None else f"?cell={args.of}"
    if args.action == "move":
        found = _asked(url, "POST", f"{PLACE}/move{query}", {"member": args.member})
        text = f"the cell goes to {printable(str(found.get('member', '')))}"
    else:
        found = _asked(url, "GET", f"{PLACE}{query}")
        text = "\n".join(_told(found))
    print(table.as_json(found) if args.json else text)
    return 0


def _move_queue(args: argparse.Namespace) -> int:
    """Have a queue go to another cell, and wait until it is there. OperatorError where it stays."""
    from broker.cli.terminal import ask

    with ask.connect(args) as management:
        given = {"name": args.member, "cell": args.cell, "wait": args.wait * 1000}
        begun = management.call("move-node", type=ask.BROKER, body=given)
        at, found = management.at(begun.cell), ask.fields(begun.body)
        while found["state"] not in ("moved", "refused"):
            time.sleep(LOOK_S)
            found = ask.fields(at.call("node-moved", type=ask.BROKER, body={"name": args.member}).body)
    if found["state"] == "refused":
        raise OperatorError(f"{printable(args.member)} stays where it is: {found['reason']}")
    text = f"{printable(args.member)} is in cell {args.cell} with {found['messages']:,} messages"
    print(table.as_json(found) if args.json else text)
    return 0


def _add_cell(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cell",
        dest="of",
        type=arguments.natural,
        metavar="NUMBER",
        help="of several cells of a cluster: the one that is meant",
    )


def _add_http(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--http",
        metavar="URL",
        type=arguments.with_login,
        default=os.environ.get(VARIABLE) or DEFAULT_HTTP,
        help=f"http[s]://[user:password@]host[:port] of a member (default: {VARIABLE}, else {DEFAULT_HTTP};"
        " user and password: SLUICE_USER, SLUICE_PASSWORD or SLUICE_PASSWORD_FILE)",
    )
    arguments.add_tls(parser, "https://")


def _url(text: str) -> SplitResult:
    try:
        url = urlsplit(text if "://" in text else f"http://{text}")
        fits = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        fits = False
    if not fits or url.path not in ("", "/") or url.query:
        raise UsageError(f"{arguments.shown(text)!r} is no http[s]://host[:port]")
    return url


def _asked(url: SplitResult, method: str, path: str, body: object = None) -> dict[str, Any]:
    """A member's answer. OperatorError with its reason if it refuses, or doesn't answer."""
    from urllib.error import HTTPError, URLError
    from urllib.request import BaseHandler, HTTPSHandler, ProxyHandler, Request, build_opener

    from broker.client.tls import Credentials, context_of

    host = url.netloc.rpartition("@")[2]
    headers = {"Accept": "application/json", "Content-Type": "application/json", **_login(url)}
    data = None if body is None else json.dumps(body).encode()
    # The scheme is checked above; a proxy of the environment knows the way to the world, not to a member.
    request = Request(f"{url.scheme}://{host}{path}", data, headers, method=method)  # noqa: S310
    handlers: list[BaseHandler] = [ProxyHandler({})]
    if url.scheme == "https":
        handlers.append(HTTPSHandler(context=context_of(Credentials.of_environment())))
    try:
        with build_opener(*handlers).open(request, timeout=TIMEOUT_S) as response:
            return _read(response.read(MOST_BYTES), host)
    except HTTPError as refusal:
        with refusal:
            return _read(refusal.read(MOST_BYTES), host, f"{host} answers {refusal.code} {refusal.reason}")
    except URLError as fault:
        reason = getattr(fault.reason, "strerror", None) or fault.reason
        raise OperatorError(f"{host} does not answer: {reason}") from None
    except (OSError, ValueError) as fault:
        raise OperatorError(f"{host} does not answer: {fault}") from None


def _read(content: bytes, host: str, refusal: str = "") -> dict[str, Any]:
    """What a member says. OperatorError where it is a refusal, with its reason, or nothing of a member's."""
    try:
        answer = json.loads(content)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise OperatorError(refusal or f"{host} answers what no member does")
    if refusal:
        raise OperatorError(str(answer.get("error") or refusal))
    return answer


def _login(url: SplitResult) -> dict[str, str]:
    if not url.username:
        return {}
    login = f"{unquote(url.username)}:{unquote(url.password or '')}"
    return {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}


def _told(status: dict[str, Any]) -> list[str]:
    """The cell in a few lines, then its members."""
    engine = status["engine"]
    owner = printable(str(status["owner"])) or "nobody"
    if status["owner"] and not status["owner_reachable"]:
        owner += ", which can't be reached"
    lines = [
        f"cell {printable(str(status['cell']))} as {printable(str(status['member']))} sees it:"
        f" owned by {owner}, epoch {status['epoch']}, {status['take_overs']} take-overs",
    ]
    if status["suspended"]:
        lines.append(f"suspended: {printable(str(status['suspended']))}")
    servers = ", ".join(printable(str(each)) for each in engine["servers"])
    reached = f"connected to {printable(str(engine['connected']))}" if engine["connected"] else "connected"
    if not engine["reachable"]:
        reached = "no server can be reached"
    among = f" of {servers}" if servers else ""
    lines.append(f"log: position {engine['position']:,}, {reached}{among}")
    if status.get("cells"):
        lines += ["", table.plain(OF_CELLS, status["cells"])]
    return [*lines, "", table.plain(COLUMNS, _rows(status["members"]))]


def _rows(members: Sequence[dict[str, Any]]) -> list[table.Row]:
    return [each | {"seen": f"{each['seen_ago_s']:.1f} s ago"} for each in members]
