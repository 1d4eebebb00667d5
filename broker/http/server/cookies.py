"""The console's cookie: read from a request, said in an answer (RFC 6265).

Its name holds the port, since browsers keep one set of cookies for all ports of a host. Under TLS it is a
`__Host-` cookie: only this host can set it, and only over TLS.
"""

from __future__ import annotations

from starlette.types import Scope

LONGEST = 256


def is_secure(scope: Scope) -> bool:
    """Whether the browser speaks TLS: to us, or to a proxy before us as its page's origin says."""
    origins = [value for name, value in scope["headers"] if name == b"origin"]
    return scope.get("scheme") == "https" or any(each.startswith(b"https://") for each in origins)


def tokens(scope: Scope) -> list[str]:
    """What the request's cookies of that name hold; over TLS only those that were set over TLS."""
    names = {_name(scope, True), _name(scope, scope.get("scheme") == "https")}
    found: list[str] = []
    for header, value in scope["headers"]:
        if header != b"cookie":
            continue
        for part in value.decode("latin-1").split(";"):
            name, _, token = part.strip().partition("=")
            if name in names and 0 < len(token) <= LONGEST:
                found.append(token)
    return found[:4]


def said(scope: Scope, token: str) -> str:
    """The header that sets it, for as long as the browser runs."""
    return f"{_name(scope, is_secure(scope))}={token}; {_attributes(scope)}"


def unsaid(scope: Scope) -> str:
    """The header that takes it back."""
    return f"{_name(scope, is_secure(scope))}=; Max-Age=0; {_attributes(scope)}"


def _attributes(scope: Scope) -> str:
    return "Path=/; HttpOnly; SameSite=Strict" + ("; Secure" if is_secure(scope) else "")


def _name(scope: Scope, secure: bool) -> str:
    port = scope["server"][1] if scope.get("server") else 0
    return f"{'__Host-' if secure else ''}sluice-session-{port}"
