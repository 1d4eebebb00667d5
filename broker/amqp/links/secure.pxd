from broker.amqp.links.connection cimport ConnectionIO
from broker.security.tlsstream cimport TlsStream

cdef class SecureConnection(ConnectionIO):
    cdef readonly TlsStream tls
