"""Every command an operator or a client's attach can give, in one place; AMQP, HTTP and the command
line translate to it and decide nothing themselves.

All verbs run on the thread that owns the engine, within a turn; the caller ends the turn, so that
credit given or taken back by a command goes out. A refused command changes nothing.
"""

from __future__ import annotations

from broker.config.flow import BrokerDefaults
from broker.config.policies import PolicySet
from broker.engine.engine import Engine
from broker.manage.access import AccessControl
from broker.manage.backups import Backups
from broker.manage.cells import CellOperations
from broker.manage.cluster import ClusterOperations
from broker.manage.diagnostics import Diagnostics
from broker.manage.explaining import Explanations
from broker.manage.holds import ProducerHolds
from broker.manage.idle import Idle
from broker.manage.loglevels import LogLevels
from broker.manage.messages import QueuedMessages
from broker.manage.nodes import Nodes
from broker.manage.operators import Operators
from broker.manage.policies import Policies
from broker.manage.policy_reader import PolicyReader
from broker.manage.process import Process
from broker.manage.queries import Queries
from broker.manage.readers import StreamReaders
from broker.manage.restoration import Restoration
from broker.manage.totals import Totals
from broker.manage.tracing import Tracing
from broker.manage.views import Links


class Model:
    """An engine, its policies and the links on it, under the verbs that operators know, by subject.

    ``authority`` knows who may do what: no verb asks it, but ``AuthorizedModel`` does before each.
    """

    def __init__(
        self,
        engine: Engine,
        policies: PolicySet,
        defaults: BrokerDefaults,
        links: Links,
        process: Process | None = None,
        holds: ProducerHolds | None = None,
        auto_create: bool = True,
    ) -> None:
        self.engine = engine
        self.links = links
        self.process = process or Process()
        self.holds = holds or ProducerHolds()
        self.authority = AccessControl()
        self.backups = Backups()
        self.log_levels = LogLevels()
        self.tracing = Tracing()
        self.cluster = ClusterOperations()
        self.cells = CellOperations()
        totals = Totals()
        self.policies = Policies(engine, policies, defaults, self.authority, auto_create)
        self.policy_reader = PolicyReader()
        self.operators = Operators(engine, self.holds, links)
        self.nodes = Nodes(engine, self.policies, self.operators.hold_node, totals)
        self.subscriptions = self.nodes.subscriptions
        self.bridges = self.nodes.bridges
        self.ownership = self.nodes.ownership
        self.aside = self.nodes.aside
        self.restoration = Restoration(engine, self.policies, self.nodes, self.operators)
        self.messages = QueuedMessages(engine, self.nodes)
        self.readers = StreamReaders(engine, self.nodes)
        self.explanations = Explanations(engine, self.policies, self.nodes, self.holds)
        self.diagnostics = Diagnostics(engine, self.nodes, links, self.holds, self.cluster)
        self.queries = Queries(
            engine,
            self.policies,
            self.nodes,
            links,
            self.holds,
            self.process,
            self.diagnostics,
            totals,
            self.cluster,
        )
        self.listing = self.queries.listing
        self._idle = Idle(engine, self.subscriptions, lambda name: self.nodes.delete(name, anyway=True))

    def sample(self) -> None:
        """Sample all nodes for ``history``, and delete those that nobody uses any more; once a second."""
        self._idle.look()
        self.diagnostics.forecasts.sample()
        self.queries.samples.look(self.engine.topology.every_node(), self.engine.turn.now_ns)
