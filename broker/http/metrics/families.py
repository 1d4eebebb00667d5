"""Which Prometheus families there are: the name of each, what it counts and where it is found.

Names, units and `_total` are as Prometheus's naming asks. A path is an attribute of the view that the
table is of; of a queue, one of the survey's columns.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.manage.stats import STATS


@dataclass(frozen=True, slots=True)
class Family:
    """One family; where it is ``sparse``, 0 means that there is none, and no sample says so."""

    name: str
    text: str
    path: str
    sparse: bool = False


PER_NODE = tuple(
    Family(stat.metric, stat.help, stat.path, stat.sparse)
    for stat in STATS
    if stat.metric and not stat.outcome
)
OUTCOMES = tuple(stat.outcome for stat in STATS if stat.outcome)

OF_BROKER = (
    Family("sluice_uptime_seconds", "Time since the start", "uptime_s"),
    Family("sluice_flow_control_enabled", "0 where no threshold is enforced", "flow_control"),
    Family("sluice_operator_holds", "Patterns whose producers an operator stops", "holds"),
    Family("sluice_policy_files", "Files whose policies hold", "policy_files"),
    Family("sluice_connections", "Open connections", "connections"),
    Family("sluice_producers", "Producer links", "producers"),
    Family("sluice_consumers", "Consumer links", "consumers"),
    Family("sluice_queues", "Queues", "queues"),
    Family("sluice_topics", "Topics", "topics"),
    Family("sluice_subscriptions", "Subscriptions", "subscriptions"),
    Family("sluice_stopped_nodes", "Nodes whose producers are stopped", "stopped_nodes"),
    Family("sluice_blocked_producers", "Producer links that wait", "blocked_producers"),
    Family("sluice_slow_consumers", "Consumer links that are slow", "slow_consumers"),
    Family("sluice_deadlocks", "Circles of nodes and connections that wait for each other", "deadlocks"),
    Family("sluice_deadlocks_found_total", "How many were found", "deadlocks_found"),
    Family(
        "sluice_open_transactions",
        "Transactions that are neither committed nor rolled back",
        "open_transactions",
    ),
    Family("sluice_committed_transactions_total", "Transactions that committed", "committed_transactions"),
    Family(
        "sluice_rolled_back_transactions_total", "Transactions that rolled back", "rolled_back_transactions"
    ),
    Family(
        "sluice_timed_out_transactions_total",
        "Of these, how many because their time was over",
        "timed_out_transactions",
    ),
    Family("sluice_set_aside", "What survived a restart and could not be restored", "set_aside"),
    Family("sluice_depth_messages", "Messages enqueued and not yet dequeued", "depth_msgs"),
    Family("sluice_depth_bytes", "Their encoded size", "depth_bytes"),
    Family("sluice_promised_credit", "Credit granted and not yet used", "promised_msgs"),
    Family("sluice_parked_messages", "Messages waiting outside a queue", "parked_msgs"),
    Family("sluice_parked_bytes", "Their encoded size", "parked_bytes"),
    Family("sluice_memory_bytes", "Resident memory of the broker", "memory_bytes"),
    Family("sluice_memory_limit_bytes", "Memory messages may take, 0: no limit", "memory_limit_bytes"),
    Family("sluice_messages_received_total", "Messages enqueued", "totals.received"),
    Family("sluice_messages_received_bytes_total", "Their encoded size", "totals.received_bytes"),
    Family("sluice_messages_sent_total", "Messages sent to consumers", "totals.delivered"),
    Family("sluice_messages_refused_total", "Messages refused for want of room", "totals.refused"),
    Family("sluice_messages_dropped_total", "Messages dropped", "totals.dropped"),
    Family(
        "sluice_messages_unrouted_total", "Messages to topics that no subscription took", "totals.unrouted"
    ),
    Family("sluice_messages_expired_total", "Messages that expired", "totals.expired"),
    Family(
        "sluice_messages_dead_lettered_total", "Messages that became dead letters", "totals.dead_lettered"
    ),
    Family("sluice_messages_duplicate_total", "Messages dropped as duplicates", "totals.duplicated"),
    Family(
        "sluice_messages_replaced_total",
        "Messages that a newer one of their key replaced",
        "totals.replaced",
    ),
    Family(
        "sluice_messages_timed_out_total",
        "Messages taken back from consumers (consumer_timeout)",
        "totals.timed_out",
    ),
    Family("sluice_held_bytes", "Memory all messages take, with their places", "store.held_bytes"),
    Family("sluice_store_messages", "Durable messages on disk", "store.store_msgs"),
    Family("sluice_store_bytes", "What they take", "store.store_bytes"),
    Family("sluice_store_limit_bytes", "What they may take, 0: no limit", "store.store_limit_bytes"),
    Family("sluice_store_syncs_total", "Writes to the journal that were synced", "store.syncs"),
    Family("sluice_store_sync_seconds_total", "How long they took", "store.sync_seconds"),
    Family("sluice_store_groups_total", "Groups of records written", "store.groups"),
    Family("sluice_store_written_bytes_total", "Records in them", "store.written_bytes"),
    Family("sluice_temp_bytes", "Messages paged out to disk", "store.temp_bytes"),
    Family("sluice_temp_limit_bytes", "What they may take, 0: no limit", "store.temp_limit_bytes"),
)
STORE_STATES = ("writing", "full", "failed")

READER_LAG = Family(
    "sluice_stream_reader_lag_messages", "Messages that came since a named reader's place", "lag_msgs"
)
READERS_LEFT_OUT = Family(
    "sluice_stream_readers_left_out", "Named readers of streams that have no sample", "readers_left_out"
)
PER_BRIDGE = (
    Family("sluice_bridge_open", "1 while both ends are there", "state"),
    Family("sluice_bridge_crosses", "1 while backpressure crosses it", "crosses"),
    Family("sluice_bridge_copied_messages_total", "Messages copied", "copied"),
    Family("sluice_bridge_passed_by_messages_total", "Messages its selector didn't want", "passed_by"),
    Family("sluice_bridge_refused_messages_total", "Messages its target refused", "refused"),
)
PER_ROUTE = (
    Family("sluice_route_up", "1 while it is connected", "state"),
    Family("sluice_route_forwarded_messages_total", "Messages forwarded", "forwarded"),
    Family("sluice_route_backlog_messages", "Messages that wait here to go out", "backlog"),
    Family("sluice_route_unsettled_messages", "Messages under way", "unsettled"),
    Family("sluice_route_credit", "What the receiving end would take now", "credit"),
    Family("sluice_route_rejected_messages_total", "Messages the other end rejected", "rejected"),
    Family("sluice_route_returned_messages_total", "Messages the other end gave back", "returned"),
    Family("sluice_route_connects_total", "How often it was connected", "connects"),
)
PER_CHANNEL = (
    Family("sluice_channel_open", "1 while it sends", "state"),
    Family("sluice_channel_rate_limit_bytes_per_second", "Most it sends", "max_rate"),
    Family("sluice_channel_sent_messages_total", "Messages sent", "sent"),
    Family("sluice_channel_sent_bytes_total", "What they took", "sent_bytes"),
    Family("sluice_channel_backlog_messages", "Messages that wait to be sent", "backlog"),
    Family("sluice_channel_backlog_bytes", "What they take", "backlog_bytes"),
    Family("sluice_channel_waiting_messages", "Messages whose settlement waits", "waiting"),
    Family("sluice_channel_too_large_messages_total", "Messages no datagram holds", "too_large"),
    Family("sluice_channel_dropped_messages_total", "Messages dropped", "dropped"),
)
# States that count as 1 in the tables above.
UP = ("open", "up", "connected", "sending")

PER_PRODUCER = (
    Family("sluice_producer_link_credit", "Credit it has", "credit"),
    Family("sluice_producer_link_window", "Most credit it may hold now", "window"),
    Family("sluice_producer_link_blocked", "1 while it waits", "blocked"),
    Family("sluice_producer_link_parked_messages", "Its messages that wait outside the queue", "parked"),
    Family("sluice_producer_link_messages_total", "Messages it sent", "used"),
)
PER_CONSUMER = (
    Family("sluice_consumer_link_credit", "Credit its client gave", "credit"),
    Family("sluice_consumer_link_window", "Most unsettled messages, 0: no limit", "window_limit"),
    Family("sluice_consumer_link_unsettled_messages", "Messages it holds", "unsettled"),
    Family("sluice_consumer_link_window_full", "1 while its window is full", "shut"),
    Family("sluice_consumer_link_window_full_total", "How often it was", "shut_count"),
    Family("sluice_consumer_link_slow", "1 while it is slow", "slow"),
    Family("sluice_consumer_link_delivered_messages_total", "Messages sent to it", "delivered"),
    Family("sluice_consumer_link_settled_messages_total", "Messages it settled", "settled"),
)
