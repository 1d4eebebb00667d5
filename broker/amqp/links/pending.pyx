"""Deliveries that wait for their outcome."""

from libc.stdlib cimport free, realloc

from broker.amqp.links.proton cimport pn_delivery_set_context


cdef class PendingDelivery:
    """A message outside its node, parked or held back; its delivery stays unsettled until it has its outcome."""


cdef PendingDelivery pending_delivery(Node node, ProducerCredit account, long bits):
    """Make one of a message that an account's node is to take."""
    cdef PendingDelivery pending = PendingDelivery()
    pending.node = node
    pending.account = account
    pending.bits = bits
    return pending


cdef class AwaitingSync:
    """Deliveries of one link whose last word waits for the disk, in the order they came, each with its group."""

    def __dealloc__(self):
        free(self.deliveries)
        free(self.groups)

    cdef object wait(self, Engine engine, object link, void *delivery):
        """Keep a delivery until the group that is open now is on disk: ``link.stored(group)`` is told then."""
        cdef long group = engine.durability.commit.last_group()
        if self.group != group:
            self.group = engine.durability.wait_for_disk(link)
        self.push(delivery, group)

    cdef object push(self, void *delivery, long group):
        if self.first > 0 and self.end == self.capacity:
            self.compact()
        if self.end == self.capacity:
            self.capacity = max(self.capacity * 2, 64)
            self.deliveries = <void **>realloc(self.deliveries, self.capacity * sizeof(void *))
            self.groups = <long *>realloc(self.groups, self.capacity * sizeof(long))
            if self.deliveries == NULL or self.groups == NULL:
                raise MemoryError()
        self.deliveries[self.end] = delivery
        self.groups[self.end] = group
        self.end += 1

    cdef object compact(self):
        cdef long i
        for i in range(self.end - self.first):
            self.deliveries[i] = self.deliveries[self.first + i]
            self.groups[i] = self.groups[self.first + i]
        self.end -= self.first
        self.first = 0

    cdef void *pop(self, long group):
        """Take the oldest delivery of a group that is on disk; NULL if there is none."""
        cdef void *delivery
        while self.first < self.end and self.groups[self.first] <= group:
            delivery = self.deliveries[self.first]
            self.first += 1
            if delivery != NULL:
                return delivery
        if self.first == self.end:
            self.first = self.end = 0
        return NULL

    cdef object discard(self, void *delivery):
        """Forget a delivery: the peer settled it itself, and nothing is left to say."""
        cdef long i
        for i in range(self.first, self.end):
            if self.deliveries[i] == delivery:
                self.deliveries[i] = NULL

    cdef object clear(self):
        self.first = self.end = 0

    cdef object mark(self):
        """Let ``ConnectionIO.part`` know these deliveries: nobody knows yet whether they are on disk."""
        cdef long i
        for i in range(self.first, self.end):
            if self.deliveries[i] != NULL:
                pn_delivery_set_context(self.deliveries[i], <void *>self)
