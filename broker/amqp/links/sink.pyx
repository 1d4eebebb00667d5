"""Links whose messages are requests to the broker itself."""

from broker cimport constants
from broker.amqp.links.pending cimport PendingDelivery
from broker.amqp.links.proton cimport pn_delivery_settle


cdef class SinkLink(ProducerLink):
    """A link whose messages go to a function, not to a queue (the management node).

    ``sink(data, done)`` says whether it has taken the message: without ``done`` it has then dealt with it, with it
    it calls that when it has.
    """

    def __init__(self, ConnectionIO connection, size_t link, Engine engine, str name, long max_size, object sink):
        ProducerLink.__init__(self, connection, link, engine, name, max_size)
        self.sink = sink
        # A function takes whole messages; max_size bounds them.
        self.most_held = self.look_again = constants.UNBOUNDED

    cdef object take(self, void *delivery, bytes data, long bits, bint settled):
        cdef PendingDelivery held
        if self.sink(data, None):
            self.outcome(delivery, constants.ACCEPTED)
            self.renew_open()
            return
        held = PendingDelivery()
        if settled:
            pn_delivery_settle(delivery)
        else:
            self.hold(held, delivery)
        self.kept += 1
        if not self.sink(data, lambda: self.handled(held)):
            self.fail("amqp:resource-limit-exceeded", "too many requests wait already")

    def handled(self, PendingDelivery held):
        """Accept a request that waited: it has been answered."""
        if not self.dead:
            self.release_held(held, constants.ACCEPTED)
