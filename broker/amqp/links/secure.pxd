from broker.amqp.links.connection cimport Connection
from broker.security.tlsstream cimport TlsStream

cdef class SecureConnection(Connection):
    cdef readonly TlsStream tls
