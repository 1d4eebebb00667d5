from broker.amqp.wire cimport Connection
from broker.tlsstream cimport TlsStream

cdef class SecureConnection(Connection):
    cdef readonly TlsStream tls
