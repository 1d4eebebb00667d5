"""Addresses of peers as they are written, and the network whose addresses are counted as one.

An IPv4 address is one peer's. Of IPv6 a customer has 64 bits of addresses at least, and often 80: counted by
address nothing would ever be counted twice.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

HOST_BITS, SITE_BITS = 64, 80


def written(host: str, port: int) -> str:
    """``host:port``; an IPv6 address in brackets, so that nothing of it can be taken for the port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def network_of(address: str) -> str:
    """Find the network of ``host``, ``host:port`` or ``[host]:port``: an IPv4 address, or 64 bits of IPv6."""
    found = _parsed(address)
    if found is None:
        return _host(address)
    return str(found) if isinstance(found, IPv4Address) else str(_cut(found, HOST_BITS))


def site_of(address: str) -> str:
    """Find the 48 bits of IPv6 that a site has, all of which one attacker can use; empty for IPv4."""
    found = _parsed(address)
    return str(_cut(found, SITE_BITS)) if isinstance(found, IPv6Address) else ""


def _cut(address: IPv6Address, bits: int) -> IPv6Address:
    return IPv6Address(int(address) >> bits << bits)


def _host(address: str) -> str:
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address


def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    host = _host(address)
    # A host and port without brackets can be told from a host only where it is no address as a whole.
    for candidate in (host, host.rpartition(":")[0]):
        try:
            found = ip_address(candidate.partition("%")[0])
        except ValueError:
            continue
        return found if isinstance(found, IPv4Address) else found.ipv4_mapped or found
    return None
