"""The room that each credit of one address reserves, and every gate that it is reserved in.

A credit at a queue reserves room at the queue, in the broker's memory and, if the queue is kept on disk, in a
budget of the disk; one at a topic reserves at every subscription with flow control as well. Each of these is
a ``Reservation``. All that is asked of them together, such as how much room there is, is asked in
``ReservationSet``, in one loop each.
"""

from __future__ import annotations

from broker import constants
from broker.flow.gate import Gate


class Reservation:
    """Room in one gate that each credit of an address reserves.

    The gate is a node's, with its thresholds, unless it is a budget that nodes share: ``in_memory`` or
    ``on_disk``. Messages come to a node's gate in so many ``ways`` at once. A budget keeps ``copies`` of each
    message; of what is beyond ``most`` bytes, nothing is in memory, and all copies share it on disk.
    """

    def __init__(
        self, gate: Gate, most: int = constants.UNBOUNDED, in_memory: bool = False, on_disk: bool = False
    ) -> None:
        self.gate = gate
        self.most = most
        self.in_memory = in_memory
        self.on_disk = on_disk
        self.ways = 1
        self.copies = 1

    def weight(self, size: int) -> int:
        """Return the bytes that one message of ``size`` bytes takes in the gate, in each way it comes."""
        if self.on_disk:
            return size + (self.copies - 1) * min(size, self.most)
        if self.in_memory:
            return self.copies * (min(size, self.most) + constants.HELD_BYTES)
        return size

    def promise(self, msgs: int, reserve_bytes: int) -> None:
        """Reserve for ``msgs`` credits of ``reserve_bytes`` each; negative numbers give back."""
        msgs *= self.ways
        self.gate.promise(msgs, msgs * self.weight(reserve_bytes))

    def promise_urgent(self, msgs: int, reserve_bytes: int) -> None:
        """Count promises as urgent producers' at a node's gate; budgets have no reserve."""
        if not (self.in_memory or self.on_disk):
            msgs *= self.ways
            self.gate.promise_urgent(msgs, msgs * self.weight(reserve_bytes))

    def room(self, reserve_bytes: int, urgent: bool = False) -> int:
        """Return how many more credits of ``reserve_bytes`` each have room, with the reserve if ``urgent``.

        As in a gate, one always has where nothing is, in however many ways it comes.
        """
        weight = self.weight(reserve_bytes)
        room = self.gate.whole_room(weight) if urgent else self.gate.room(weight)
        if self.ways == 1:
            return room
        empty = self.gate.depth_msgs == 0 and self.gate.promised_msgs == 0
        return max(room // self.ways, 1) if empty and room > 0 else room // self.ways

    def admits(self, size: int, urgent: bool = False) -> bool:
        """Return whether a parked message may enter its node.

        It is in memory already: what is parked there doesn't keep out what is parked.
        """
        if self.in_memory:
            return self.gate.takes_parked(self.weight(size))
        return self.room(size, urgent) > 0

    def could_hold(self, msgs: int, nbytes: int, size: int) -> bool:
        """Return whether ``msgs`` messages of ``nbytes`` in all would have room if no credit stood.

        The last of them has ``size`` bytes; the others are in memory already.
        """
        if self.in_memory:
            return self.gate.could_hold(1, self.weight(size))
        return self.gate.could_hold(msgs, msgs * self.weight(nbytes // msgs) if self.on_disk else nbytes)


class ReservationSet:
    """All reservations of one address: the node's own gate, memory, subscriptions, and budgets on disk.

    ``members`` has all of them in this order, ``others`` those at other nodes, ``disks`` those on disk. A
    message to the address is held ``copies`` times in memory, of each no more than ``most_held`` bytes.
    ``bottleneck`` is a gate that had no room at all when somebody in line was last passed over.
    """

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.memory: Reservation | None = None
        self.others: list[Reservation] = []
        self.disks: list[Reservation] = []
        self.members = [Reservation(gate)]
        self.most_held = constants.UNBOUNDED
        self.bottleneck: Gate | None = None

    @property
    def copies(self) -> int:
        """How often a message to the address is held in memory; 1 where memory is no budget."""
        return 1 if self.memory is None else self.memory.copies

    def add_memory(self, gate: Gate, most_held: int) -> Reservation:
        """Add the budget of memory, which holds at most ``most_held`` bytes of a message."""
        self.most_held = most_held
        self.memory = Reservation(gate, most_held, in_memory=True)
        self.members.insert(1, self.memory)
        return self.memory

    def node_at(self, gate: Gate) -> Reservation:
        """Return the reservation at another node's gate, a new one in no way yet if there is none."""
        for each in self.others:
            if each.gate is gate:
                return each
        added = Reservation(gate)
        added.ways = 0
        self.others.append(added)
        self.members.insert(len(self.members) - len(self.disks), added)
        return added

    def disk_at(self, gate: Gate) -> Reservation | None:
        """Return the reservation in a budget on disk, if there is one."""
        for each in self.disks:
            if each.gate is gate:
                return each
        return None

    def add_disk(self, gate: Gate) -> Reservation:
        """Add a budget on disk, with no copy there yet."""
        added = Reservation(gate, self.most_held, on_disk=True)
        added.ways = added.copies = 0
        self.disks.append(added)
        self.members.append(added)
        return added

    def remove(self, reservation: Reservation) -> None:
        """Remove one that reserves nothing any more."""
        (self.disks if reservation.on_disk else self.others).remove(reservation)
        self.members.remove(reservation)

    def forget_bottleneck(self, gate: Gate) -> None:
        """Have nobody wait for this gate any more."""
        if self.bottleneck is gate:
            self.bottleneck = None

    def held(self, size: int) -> int:
        """Return the bytes that one copy of a message takes in memory."""
        return min(size, self.most_held) + constants.HELD_BYTES

    def takes(self, gate: Gate, size: int) -> int:
        """Return the bytes a message of ``size`` bytes takes of a budget, in all copies; 0 for nothing."""
        if self.memory is not None and self.memory.gate is gate:
            return self.memory.weight(size)
        found = self.disk_at(gate)
        return 0 if found is None else found.weight(size)

    def promise(self, msgs: int, reserve_bytes: int) -> None:
        """Reserve for ``msgs`` credits of ``reserve_bytes`` each everywhere; negative numbers give back."""
        for each in self.members:
            each.promise(msgs, reserve_bytes)

    def promise_urgent(self, msgs: int, reserve_bytes: int) -> None:
        """Count ``msgs`` promised credits of ``reserve_bytes`` each as urgent ones; negative: no more."""
        for each in self.members:
            each.promise_urgent(msgs, reserve_bytes)

    def reprice(self, msgs: int, before: int, after: int, urgent: bool = False) -> None:
        """Let each of ``msgs`` standing credits reserve ``after`` bytes instead of ``before``."""
        for each in self.members:
            change = msgs * each.ways * (each.weight(after) - each.weight(before))
            each.gate.promise(0, change)
            if urgent and not (each.in_memory or each.on_disk):
                each.gate.promise_urgent(0, change)

    def room(self, reserve_bytes: int, urgent: bool = False) -> int:
        """Return how many more credits may be promised: the least room of all."""
        least: int = constants.UNBOUNDED
        for each in self.members:
            least = min(least, each.room(reserve_bytes, urgent))
        return least

    def has_reserve(self) -> bool:
        """Return whether part of any room is kept for high priorities."""
        for each in self.members:  # noqa: SIM110
            if each.gate.reserves:
                return True
        return False

    def reserve_part(self, urgents: int, reserve_bytes: int) -> int:
        """Return how many credits of the least reserve each of so many urgent producers may keep unused."""
        least: int = constants.UNBOUNDED
        for each in self.members:
            gate = each.gate
            if gate.reserve_msgs:
                least = min(least, gate.reserve_msgs // each.ways)
            if gate.reserve_bytes:
                least = min(least, gate.reserve_bytes // max(each.ways * each.weight(reserve_bytes), 1))
        return 0 if least == constants.UNBOUNDED else least // max(urgents, 1)

    def reserve_excess(self, size: int) -> int:
        """Return how many promised credits of ``size`` bytes each stand where a reserve should be free."""
        most = 0
        for each in self.members:
            most = max(most, each.gate.reserve_excess(each.weight(size)))
        return most

    def admit(self, size: int, urgent: bool = False) -> bool:
        """Return whether a parked message may enter its node, as far as all of them are concerned."""
        for each in self.members:  # noqa: SIM110  # a plain loop, typed when compiled
            if not each.admits(size, urgent):
                return False
        return True

    def could_hold(self, msgs: int, nbytes: int, size: int) -> bool:
        """Return whether ``msgs`` messages, ``nbytes`` in all and the last ``size``, would have room.

        They would have it if no credit stood.
        """
        for each in self.members:  # noqa: SIM110
            if not each.could_hold(msgs, nbytes, size):
                return False
        return True

    def excess_msgs(self) -> int:
        """Return the credits to take back, which the gate that is furthest beyond its limit doesn't cover."""
        most = 0
        for each in self.members:
            most = max(most, each.gate.excess_msgs())
        return most

    def strict_bytes(self) -> int:
        """Return the size each credit reserves, where a gate reckons with the largest message; else 0."""
        most = 0
        for each in self.members:
            most = max(most, each.gate.strict_bytes)
        return most

    def threshold_msgs(self) -> int:
        """Return how many messages the tightest threshold of a node allows in all; 0 where there is none."""
        least = 0
        for each in self.members:
            gate = each.gate
            if not (each.in_memory or each.on_disk) and (gate.stop_msgs or gate.stop_bytes):
                allowed = gate.depth_msgs + gate.promised_msgs + gate.room(gate.unit_bytes())
                if least == 0 or allowed < least:
                    least = allowed
        return max(least, 0)

    def is_wanted(self) -> bool:
        """Return whether other nodes wait for room of a budget, which is dealt in turn."""
        for each in self.members:  # noqa: SIM110
            if each.gate.wanted:
                return True
        return False

    def is_closed(self) -> bool:
        """Return whether a gate is closed, so that there will be no room until it opens."""
        if self.bottleneck is not None and self.bottleneck.closed:
            return True
        for each in self.members:  # noqa: SIM110
            if each.gate.closed:
                return True
        return False

    def is_shut(self) -> bool:
        """Return whether the last bottleneck still is one and closed: nothing can be dealt then."""
        return self.bottleneck is not None and self.bottleneck.closed and self.bottleneck.whole_room(1) == 0

    def is_shut_by_other(self, gate: Gate) -> bool:
        """Return whether room that came free in this gate is of no use, because another has none."""
        return (
            self.bottleneck is not None and self.bottleneck is not gate and self.bottleneck.whole_room(1) == 0
        )

    def find_bottleneck(self) -> None:
        """Remember the first gate without any room, among those of other nodes and on disk."""
        self.bottleneck = None
        for each in self.members:
            if each.gate is not self.gate and not each.in_memory and each.gate.whole_room(1) == 0:
                self.bottleneck = each.gate
                return
