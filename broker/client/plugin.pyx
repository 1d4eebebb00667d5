"""Our own SASL inside Proton's client, by the interface Proton has for it (``proton/sasl_plugin.h``).

So SCRAM works beneath TLS as well, and without Cyrus. The functions are Proton's to call, on the thread
that pumps the connection; whoever begins a login keeps it alive as long as the transport.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

import cproton_ffi as _  # the one Proton of the process: its symbols have to be there first

from broker.client.login import LoginExchange, LoginError

cdef extern from *:
    """
    #include <stdbool.h>
    #include <stddef.h>
    #include <sys/types.h>
    typedef struct { size_t size; const char *start; } sluice_bytes;
    typedef struct {
        void (*free)(void *);
        const char *(*list_mechanisms)(void *);
        bool (*init_server)(void *);
        bool (*init_client)(void *);
        void (*prepare_write)(void *);
        void (*process_init)(void *, const char *, const sluice_bytes *);
        void (*process_response)(void *, const sluice_bytes *);
        bool (*process_mechanisms)(void *, const char *);
        void (*process_challenge)(void *, const sluice_bytes *);
        void (*process_outcome)(void *, const sluice_bytes *);
        bool (*can_encrypt)(void *);
        ssize_t (*max_encrypt_size)(void *);
        ssize_t (*encode)(void *, sluice_bytes, sluice_bytes *);
        ssize_t (*decode)(void *, sluice_bytes, sluice_bytes *);
    } sluice_sasl;
    extern void *pn_sasl(void *), *pnx_sasl_get_context(void *);
    extern int pn_sasl_outcome(void *);
    extern void pnx_sasl_set_implementation(void *, const sluice_sasl *, void *);
    extern void pnx_sasl_set_bytes_out(void *, sluice_bytes), pnx_sasl_set_desired_state(void *, int);
    extern void pnx_sasl_set_selected_mechanism(void *, const char *), pnx_sasl_set_failed(void *);
    extern void pnx_sasl_error(void *, const char *, const char *);
    /* proton/sasl_plugin.h, enum pnx_sasl_state */
    enum { SLUICE_INIT = 1, SLUICE_RESPONSE = 3, SLUICE_ERROR = 8 };
    """
    ctypedef int cbool "bool"
    ctypedef struct sluice_bytes:
        size_t size
        const char *start
    ctypedef struct sluice_sasl:
        void (*free)(void *) noexcept nogil
        const char *(*list_mechanisms)(void *) noexcept nogil
        cbool (*init_server)(void *) noexcept nogil
        cbool (*init_client)(void *) noexcept nogil
        void (*prepare_write)(void *) noexcept nogil
        void (*process_init)(void *, const char *, const sluice_bytes *) noexcept nogil
        void (*process_response)(void *, const sluice_bytes *) noexcept nogil
        cbool (*process_mechanisms)(void *, const char *) noexcept nogil
        void (*process_challenge)(void *, const sluice_bytes *) noexcept nogil
        void (*process_outcome)(void *, const sluice_bytes *) noexcept nogil
        cbool (*can_encrypt)(void *) noexcept nogil
        ssize_t (*max_encrypt_size)(void *) noexcept nogil
        ssize_t (*encode)(void *, sluice_bytes, sluice_bytes *) noexcept nogil
        ssize_t (*decode)(void *, sluice_bytes, sluice_bytes *) noexcept nogil
    const int SLUICE_INIT
    const int SLUICE_RESPONSE
    const int SLUICE_ERROR
    void *pn_sasl(void *)
    int pn_sasl_outcome(void *)
    void *pnx_sasl_get_context(void *)
    void pnx_sasl_set_implementation(void *, const sluice_sasl *, void *)
    void pnx_sasl_set_bytes_out(void *, sluice_bytes)
    void pnx_sasl_set_desired_state(void *, int)
    void pnx_sasl_set_selected_mechanism(void *, const char *)
    void pnx_sasl_set_failed(void *)
    void pnx_sasl_error(void *, const char *, const char *)

UNAUTHORIZED = b"amqp:unauthorized-access"


cdef class Plugin:
    """A login on its way. It holds what Proton was given until that is sent."""

    cdef object login
    cdef bytes out, name
    cdef readonly str fault

    def __init__(self, user, password):
        self.login = LoginExchange(user, password)
        self.fault = ""

    cdef void say(self, void *transport, bytes data, int state) noexcept:
        cdef sluice_bytes given
        self.out = data
        given.start = PyBytes_AS_STRING(self.out)
        given.size = PyBytes_GET_SIZE(self.out)
        pnx_sasl_set_bytes_out(transport, given)
        pnx_sasl_set_desired_state(transport, state)

    cdef bint choose(self, void *transport, str offered) except? False:
        chosen = self.login.choose(offered.split())
        if chosen is None:
            return False
        self.name = chosen[0].encode()
        pnx_sasl_set_selected_mechanism(transport, PyBytes_AS_STRING(self.name))
        self.say(transport, chosen[1], SLUICE_INIT)
        return True


def begin(size_t transport, str user, str password):
    """Have a transport authenticate with these; before it is bound. The answer has to be kept with it."""
    cdef Plugin plugin = Plugin(user, password)
    pn_sasl(<void *>transport)
    pnx_sasl_set_implementation(<void *>transport, &_implementation, <void *>plugin)
    return plugin


cdef Plugin plugin_of(void *transport):
    return <Plugin>pnx_sasl_get_context(transport)


cdef bytes taken(const sluice_bytes *came):
    return PyBytes_FromStringAndSize(came.start, came.size) if came.start != NULL else b""


cdef void fail(void *transport, Plugin plugin, fault) noexcept:
    plugin.fault = str(fault) if isinstance(fault, LoginError) else type(fault).__name__
    text = plugin.fault.encode()
    pnx_sasl_error(transport, PyBytes_AS_STRING(text), PyBytes_AS_STRING(UNAUTHORIZED))


cdef cbool on_mechanisms(void *transport, const char *offered) noexcept with gil:
    cdef Plugin plugin = plugin_of(transport)
    try:
        return plugin.choose(transport, (<bytes>offered).decode("ascii", "replace"))
    except Exception as fault:
        fail(transport, plugin, fault)
        return False


cdef void on_challenge(void *transport, const sluice_bytes *came) noexcept with gil:
    cdef Plugin plugin = plugin_of(transport)
    try:
        plugin.say(transport, plugin.login.respond(taken(came)), SLUICE_RESPONSE)
    except Exception as fault:
        fail(transport, plugin, fault)
        pnx_sasl_set_desired_state(transport, SLUICE_ERROR)


cdef void on_outcome(void *transport, const sluice_bytes *came) noexcept with gil:
    cdef Plugin plugin = plugin_of(transport)
    if pn_sasl_outcome(pn_sasl(transport)) != 0:
        return
    try:
        plugin.login.finish(taken(came))
    except Exception as fault:
        fail(transport, plugin, fault)
        pnx_sasl_set_failed(transport)


cdef void nothing(void *transport) noexcept nogil:
    pass


cdef cbool yes(void *transport) noexcept nogil:
    return True


cdef cbool no(void *transport) noexcept nogil:
    return False


cdef const char *no_mechanisms(void *transport) noexcept nogil:
    return b""


cdef void no_init(void *transport, const char *name, const sluice_bytes *came) noexcept nogil:
    pass


cdef void no_response(void *transport, const sluice_bytes *came) noexcept nogil:
    pass


cdef ssize_t no_size(void *transport) noexcept nogil:
    return 0


cdef ssize_t no_coding(void *transport, sluice_bytes came, sluice_bytes *out) noexcept nogil:
    return 0


cdef sluice_sasl _implementation
_implementation.free = nothing
_implementation.list_mechanisms = no_mechanisms
_implementation.init_server = no
_implementation.init_client = yes
_implementation.prepare_write = nothing
_implementation.process_init = no_init
_implementation.process_response = no_response
_implementation.process_mechanisms = on_mechanisms
_implementation.process_challenge = on_challenge
_implementation.process_outcome = on_outcome
_implementation.can_encrypt = no
_implementation.max_encrypt_size = no_size
_implementation.encode = no_coding
_implementation.decode = no_coding
