"""The flow state of a link on which the broker sends, as its peer is told it (AMQP 1.0 §2.6.7)."""

from broker.amqp.links.proton cimport pn_link_credit, pn_link_get_drain, pn_link_queued


cdef class SendingLink(OutgoingLink):
    """A link on which the broker sends: ``delivered`` counts what Proton was given, ``drained`` the credit that was
    given back; ``channel`` is its session's. A subclass has ``ready_msgs()``, which a flow frame tells too.
    """

    def answer_echo(self):
        """Tell the peer this link's flow state, with how many messages are available to it."""
        answer = self.connection.book.flow_frame(self.channel, self)
        if answer is not None:
            self.connection.send_performative(answer[0], answer[1])

    def delivery_count(self):
        """The link's delivery-count on the wire: what was sent, and credit that was drained."""
        return self.delivered - pn_link_queued(self.link) + self.drained

    def drains(self):
        """Whether the peer has asked for its credit to be used up."""
        return bool(pn_link_get_drain(self.link))

    def link_credit(self):
        """The link-credit that goes with ``delivery_count``; not less than nothing, though Proton counts on."""
        return max(pn_link_credit(self.link) + pn_link_queued(self.link), 0)
