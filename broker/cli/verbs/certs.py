"""Make certificates to try TLS with: a CA of your own, the broker's and a client's. Not for production."""

from __future__ import annotations

import argparse
from pathlib import Path

from broker.cli.terminal.arguments import add_json, count

EXAMPLES = (
    ("sluice certs dev certs", "for localhost, into ./certs"),
    ("sluice certs dev --host mq.example.org --user alice certs", "for another host and another user"),
)
MOST_DAYS = 36_500
LOCAL = ("localhost", "127.0.0.1", "::1")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One action, ``dev``."""
    add_json(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    dev = actions.add_parser("dev", help="a development CA, a server's and a client's certificate")
    dev.add_argument(
        "--host",
        action="append",
        metavar="NAME",
        help="a name or address of the broker; may repeat (default: localhost, 127.0.0.1 and ::1)",
    )
    dev.add_argument("--user", default="dev", metavar="NAME", help="whom the client's is for (default: dev)")
    dev.add_argument("--days", type=_days, default=365, metavar="N", help="how long they hold (default: 365)")
    dev.add_argument("folder", type=Path, metavar="DIR", help="where they are written; a CA there is kept")


def _days(text: str) -> int:
    days = count(text)
    if days > MOST_DAYS:
        raise argparse.ArgumentTypeError(f"{text!r} are too many days: {MOST_DAYS}, a hundred years, at most")
    return days


def run(args: argparse.Namespace) -> int:
    """Write them, and say what to do with them."""
    from broker.errors import OperatorError

    try:
        from broker.security.devcerts import write_all

        written = write_all(args.folder, args.host or LOCAL, args.user, args.days)
    except ImportError:
        raise OperatorError("certificates are made with `cryptography`: pip install cryptography") from None
    if args.json:
        import json

        print(json.dumps({"written": [str(path) for path in written]}))
        return 0
    for path in written:
        print(path)
    at = args.folder
    print(
        "\nin the broker's file:\n"
        "  listeners: [amqps://127.0.0.1:5671]\n"
        f"  tls: {{certificate: {at}/server.pem, key: {at}/server-key.pem, client_ca: {at}/ca.pem}}\n"
        "for clients:\n"
        f"  export SLUICE_CA={at}/ca.pem SLUICE_CERT={at}/client.pem SLUICE_KEY={at}/client-key.pem"
    )
    return 0
