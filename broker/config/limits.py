"""The `limits` section of the broker's file: one row a limit."""

from __future__ import annotations

from dataclasses import dataclass

from broker.config.fields import Count, Duration, Percent, Size, row
from broker.units import MB


@dataclass(frozen=True, slots=True)
class Limits:
    """Most that one client, and all of them together, may take. 0 milliseconds means never."""

    max_connections: int = row(Count(1, 1_000_000), 10_000, "Most connections at once")
    max_connections_per_address: int = row(Count(), 8000, "The same from one address; 0: no bound")
    max_connections_per_user: int = row(Count(), 0, "The same of one user; 0: no bound")
    max_connections_per_listener: int = row(Count(), 0, "The same at one listener; 0: no bound")
    max_connections_per_virtual_host: int = row(Count(), 0, "The same at one of `virtual_hosts`; 0: no bound")
    max_handshakes: int = row(
        Count(1), 1000, "Most connections that aren't open yet; for one more the oldest of them goes"
    )
    listen_backlog: int = row(Count(1, 65_535), 1024, "Most connections that wait to be accepted")
    control_share: int = row(
        Percent(),
        10,
        "Share of the loop's time for clients that connect, and for those that send more frames than"
        " messages, while there are messages to move",
    )
    http_share: int = row(
        Percent(),
        10,
        "Share of one processor for the HTTP port, while there are messages to move; 100 %: no bound",
    )
    max_sessions: int = row(Count(1, 65_536), 1024, "Most sessions of one connection")
    max_links: int = row(Count(1, 1_000_000), 1024, "Most links of one session")
    max_connection_links: int = row(Count(1, 1_000_000), 2048, "Most links of one connection")
    # AMQP 1.0 §2.4.1: until a client has opened, the least that every peer has to take.
    max_first_frame_size: int = row(Size(512, 1 << 20), 512, "Largest frame before an open, and open")
    max_depth: int = row(Count(4, 128), 32, "How deep values may nest that are decoded here")
    max_elements: int = row(Count(100), 10_000, "Most values in one frame, or one request, likewise")
    max_selector_length: int = row(Count(1), 8192, "Most characters of a selector")
    max_selector_depth: int = row(Count(1, 64), 64, "How deep a selector's parentheses may nest")
    max_unsettled: int = row(
        Count(1), 10_000, "Most deliveries of a link that settles second, and never does"
    )
    max_transactions: int = row(Count(1), 1000, "Most transactions of one connection that are open")
    max_transaction_size: int = row(
        Size(4096), 64 * MB, "Most bytes of messages in memory that one transaction may hold back"
    )
    max_transactions_per_user: int = row(Count(), 10_000, "Most open transactions of one user; 0: no bound")
    max_transaction_size_per_user: int = row(
        Size(),
        1024 * MB,
        "Most bytes of messages in memory that the open transactions of one user hold back; 0: no bound",
    )
    transaction_timeout_ms: int = row(
        Duration(),
        300_000,
        "A transaction is rolled back so long after its first message; 0 means never",
        shown="5 min",
    )
    max_request_size: int = row(Size(4096), MB, "Largest request to $management")
    max_waiting_requests: int = row(Count(1), 256, "Most requests to $management that wait their turn")
    # AMQP 1.0 §2.7.1: no peer may ask for frames below 512 bytes.
    max_frame_size: int = row(Size(512, (1 << 32) - 1), 65_536, "Largest frame taken in")
    max_message_size: int = row(Size(1), 100 * MB, "Largest message, where a node says nothing else")
    large_message_size: int = row(
        Size(4096), MB, "More than this of one message is not held in memory: its body goes through a file"
    )
    max_nodes_per_user: int = row(
        Count(),
        100_000,
        "Most queues, topics and subscriptions that outlive their link, of one user and still there; 0: no"
        " bound",
    )
    max_backups: int = row(Count(), 20, "Most backups in their directory; 0: no bound")
    handshake_timeout_ms: int = row(Duration(1), 10_000, "How long a client may take until it has opened")
    idle_timeout_ms: int = row(Duration(), 60_000, "A silent client is cut off; 0 means never", shown="60 s")
    send_timeout_ms: int = row(
        Duration(),
        60_000,
        "A client that takes nothing of what is written to it for so long is cut off; 0 means never",
        shown="60 s",
    )
    shutdown_timeout_ms: int = row(Duration(), 10_000, "How long a stop waits for clients")
    http_requests: int = row(
        Count(0, 1_000_000),
        100,
        "Requests over HTTP of one address in a second, three times as many at once; others wait",
    )
    http_writes: int = row(
        Count(0, 1_000_000),
        100,
        "Changes over HTTP that one address may make in a second, ten times as many at once; 0: any number",
    )
    http_logins: int = row(
        Count(0, 1_000_000),
        2,
        "Logins of the console from one address in a second, ten times as many at once; 0: any number",
    )
