cimport cython

from broker.codec cimport message
from broker.codec.message cimport Wanted

cdef long EQUAL, NOT_EQUAL, LESS, AT_MOST, GREATER, AT_LEAST, PLUS, MINUS, TIMES, OVER

cdef class Node:
    cdef object value(self, bytes data, list places)

@cython.final
cdef class Selector:
    cdef public str text
    cdef Node root
    cdef Wanted wanted
    @cython.locals(places=list)
    cpdef bint matches(self, bytes data) except -1

@cython.final
cdef class Constant(Node):
    cdef object literal

cdef class Property(Node):
    cdef long slot
    @cython.locals(at=long)
    cdef object value(self, bytes data, list places)

@cython.final
cdef class Field(Node):
    cdef long slot
    cdef object read

@cython.final
cdef class Size(Node):
    pass

@cython.final
cdef class Truth(Node):
    cdef Node operand

@cython.final
cdef class Not(Node):
    cdef Node operand

cdef class And(Node):
    cdef list operands
    @cython.locals(operand=Node)
    cdef object value(self, bytes data, list places)

cdef class Or(Node):
    cdef list operands
    @cython.locals(operand=Node)
    cdef object value(self, bytes data, list places)

@cython.final
cdef class Comparison(Node):
    cdef long comparison
    cdef Node left, right

@cython.final
cdef class Between(Node):
    cdef Node operand, low, high
    cdef bint negated

cdef class In(Node):
    cdef Node operand
    cdef object texts, truths
    cdef list numbers
    cdef bint negated
    @cython.locals(is_one=bint, is_like=bint)
    cdef object value(self, bytes data, list places)
    cdef bint _is_number(self, object found) except -1

@cython.final
cdef class Like(Node):
    cdef Node operand
    cdef object pattern
    cdef bint negated

@cython.final
cdef class IsNull(Node):
    cdef Node operand
    cdef bint negated

cdef class Arithmetic(Node):
    cdef Node first
    cdef list operators, operands
    @cython.locals(operand=Node, position=long)
    cdef object value(self, bytes data, list places)

@cython.final
cdef class Negative(Node):
    cdef Node operand

@cython.final
cdef class Positive(Node):
    cdef Node operand

cdef object _negated(object truth)
cdef object _either(object left, object right)
cdef bint _is_number(object found) except -1
cdef bint _compare(long comparison, object left, object right) except -1
cdef bint _is_ordered(long comparison, object left, object right) except -1
