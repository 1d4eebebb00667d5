"""Getting to a broker: TCP, TLS and the login, behind which a socket speaks plain AMQP.

Blocks, under one deadline for all of it. TLS checks the broker's name, always, and there is no way back to
plain AMQP.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
import time

from . import sasl
from .errors import AmqpError, LoginError, UnreachableError
from .kinds import Broker
from .options import MECHANISMS, Options, file_of

# Mechanisms that send a secret as it is.
AS_IT_IS = frozenset({"PLAIN", "OAUTHBEARER"})


def dial(broker: Broker, options: Options) -> socket.socket:
    """A connected, logged in, non-blocking socket. LoginError is final, UnreachableError is not."""
    deadline = time.monotonic() + options.connect_timeout
    try:
        connected = socket.create_connection((broker.host, broker.port), options.connect_timeout)
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if broker.scheme == "amqps":
                connected = _context(options).wrap_socket(connected, server_hostname=broker.host)
            _login(connected, broker, options, deadline)
        except BaseException:
            connected.close()
            raise
    except ssl.SSLCertVerificationError as fault:
        raise LoginError(f"{broker}: TLS: {fault.verify_message}") from None
    except ssl.SSLError as fault:
        raise UnreachableError(f"{broker}: TLS: {fault.reason or fault}") from None
    except TimeoutError:
        raise UnreachableError(f"{broker} did not answer within {options.connect_timeout:g} s") from None
    except OSError as fault:
        raise UnreachableError(f"{broker}: {fault.strerror or fault}") from None
    except AmqpError as fault:
        raise type(fault)(f"{broker}: {fault}") from None
    connected.setblocking(False)
    return connected


def _context(options: Options) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        if options.tls_ca is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(file_of(options.tls_ca))
        if options.tls_certificate is not None:
            key = None if options.tls_key is None else file_of(options.tls_key)
            context.load_cert_chain(file_of(options.tls_certificate), key, password=_no_password)
    except OSError as fault:
        raise LoginError(f"tlsCa, tlsCertificate or tlsKey: {fault.strerror or fault}") from None
    return context


def _no_password() -> str:
    raise LoginError("tlsKey: keys with a password are not taken")


def _login(connected: socket.socket, broker: Broker, options: Options, deadline: float) -> None:
    login = sasl.Login(options.user, options.password(), options.token())
    connected.sendall(sasl.HEADER)
    if _exactly(connected, 8, deadline) != sasl.HEADER:
        raise UnreachableError("no SASL is spoken there (is TLS?)")
    while True:
        code, fields = sasl.read(_frame(connected, deadline))
        field = fields[0] if fields else b""
        if code == sasl.MECHANISMS:
            offered = field.decode("ascii", "replace").split()
            chosen = login.choose(
                offered, allowed(broker, options), certificate=options.tls_certificate is not None
            )
            connected.sendall(chosen)
        elif code == sasl.CHALLENGE:
            connected.sendall(login.respond(field))
        elif code == sasl.OUTCOME and field == bytes((sasl.TRANSIENT,)):
            raise UnreachableError("the broker asks to log in later")
        elif code == sasl.OUTCOME and field:
            return login.finish(field[0], fields[1] if len(fields) > 1 else b"")
        else:
            raise LoginError("what the broker says before the login is no SASL")


def allowed(broker: Broker, options: Options) -> tuple[str, ...]:
    """The mechanisms that may be used: those that send a secret as it is only where nobody can listen, unless
    they were asked for."""
    if options.sasl_mechanisms is not None:
        return options.sasl_mechanisms
    if broker.scheme == "amqps" or _is_loopback(broker.host):
        return MECHANISMS
    return tuple(name for name in MECHANISMS if name not in AS_IT_IS)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _frame(connected: socket.socket, deadline: float) -> bytes:
    head = _exactly(connected, 8, deadline)
    size, behind = int.from_bytes(head[:4], "big"), head[4] * 4
    if not 8 <= behind <= size <= sasl.LONGEST_FRAME or head[5] != 1:
        raise LoginError("what the broker says before the login is no SASL")
    return _exactly(connected, size - 8, deadline)[behind - 8 :]


def _exactly(connected: socket.socket, size: int, deadline: float) -> bytes:
    found = b""
    while len(found) < size:
        connected.settimeout(max(deadline - time.monotonic(), 0.001))
        came = connected.recv(size - len(found))
        if not came:
            raise UnreachableError("the broker hung up before the login was through")
        found += came
    return found
