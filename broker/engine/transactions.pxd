cimport cython

from broker cimport constants
from broker.engine.delivery cimport Delivery
from broker.engine.durability cimport Durability, GroupCommit
from broker.engine.intake cimport Intake
from broker.engine.node cimport Node
from broker.engine.settlement cimport Settlement
from broker.engine.transaction cimport Post, Retirement, Transaction, TransactionLimits, UserTransactions
from broker.engine.turn cimport Turn
from broker.flow.gate cimport Gate
from broker.queues.queue cimport Entry

@cython.final
cdef class Transactions:
    cdef Turn _turn
    cdef Durability _durability
    cdef Intake _intake
    cdef Settlement _settlement
    cdef Delivery _delivery
    cdef object _letters
    cdef public set open
    cdef public TransactionLimits limits
    cdef public dict users
    cdef public list complete
    cdef public long committed, rolled_back, timed_out

    cpdef Transaction declare(self, bytes name, object owner, long timeout_ns, long most_bytes, str user=*)
    @cython.locals(commit=GroupCommit, post=Post, retired=Retirement, intake=Intake)
    cpdef long commit(self, Transaction transaction) except -1
    @cython.locals(post=Post, retired=Retirement)
    cpdef object roll_back(self, Transaction transaction)
    cpdef object finish(self)
    cpdef object leave(self, Transaction transaction)
    @cython.locals(node=Node, entry=Entry, settlement=Settlement)
    cdef object _apply(self, Retirement retired)
    @cython.locals(post=Post, first=Post, msgs=long)
    cdef object _release(self, Transaction transaction)
    @cython.locals(post=Post, node=Node, each=Node, last=Node, gate=Gate, msgs=long, nbytes=long)
    cdef str _obstacle(self, Transaction transaction)
    @cython.locals(user=UserTransactions, node=Node)
    cdef object _end(self, Transaction transaction, str state)
