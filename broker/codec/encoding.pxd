# Arguments are objects: subclasses of str and bytearrays are encoded as well.
cpdef bytes text(value)
cpdef bytes symbol(value)
cpdef bytes binary(value)
cpdef bytes compound(long code, items, long count)
