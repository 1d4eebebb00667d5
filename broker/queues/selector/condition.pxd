cimport cython

from broker.codec cimport message
from broker.codec.message cimport WantedFields

cdef long EQUAL, NOT_EQUAL, LESS, AT_MOST, GREATER, AT_LEAST, PLUS, MINUS, TIMES, OVER

cdef class ConditionNode:
    cdef object value(self, bytes data, list places)

@cython.final
cdef class Selector:
    cdef public str text
    cdef ConditionNode root
    cdef WantedFields wanted
    @cython.locals(places=list)
    cpdef bint matches(self, bytes data) except -1

@cython.final
cdef class Constant(ConditionNode):
    cdef object literal

cdef class Property(ConditionNode):
    cdef long slot
    @cython.locals(at=long)
    cdef object value(self, bytes data, list places)

@cython.final
cdef class MessageField(ConditionNode):
    cdef long slot
    cdef object read

@cython.final
cdef class MessageSize(ConditionNode):
    pass

@cython.final
cdef class Truth(ConditionNode):
    cdef ConditionNode operand

@cython.final
cdef class Not(ConditionNode):
    cdef ConditionNode operand

cdef class And(ConditionNode):
    cdef list operands
    @cython.locals(operand=ConditionNode)
    cdef object value(self, bytes data, list places)

cdef class Or(ConditionNode):
    cdef list operands
    @cython.locals(operand=ConditionNode)
    cdef object value(self, bytes data, list places)

@cython.final
cdef class Comparison(ConditionNode):
    cdef long comparison
    cdef ConditionNode left, right

@cython.final
cdef class Between(ConditionNode):
    cdef ConditionNode operand, low, high
    cdef bint negated

cdef class In(ConditionNode):
    cdef ConditionNode operand
    cdef object texts, truths
    cdef list numbers
    cdef bint negated
    @cython.locals(is_one=bint, is_like=bint)
    cdef object value(self, bytes data, list places)
    cdef bint _is_number(self, object found) except -1

@cython.final
cdef class Like(ConditionNode):
    cdef ConditionNode operand
    cdef object pattern
    cdef bint negated

@cython.final
cdef class IsNull(ConditionNode):
    cdef ConditionNode operand
    cdef bint negated

cdef class Arithmetic(ConditionNode):
    cdef ConditionNode first
    cdef list operators, operands
    @cython.locals(operand=ConditionNode, position=long)
    cdef object value(self, bytes data, list places)

@cython.final
cdef class Negative(ConditionNode):
    cdef ConditionNode operand

@cython.final
cdef class Positive(ConditionNode):
    cdef ConditionNode operand

cdef object _negated(object truth)
cdef object _either(object left, object right)
cdef bint _is_number(object found) except -1
cdef bint _compare(long comparison, object left, object right) except -1
cdef bint _is_ordered(long comparison, object left, object right) except -1
