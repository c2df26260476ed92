"""Who speaks: the rules of `a2a.principals` over what a request shows. Touches its arguments only."""

from __future__ import annotations

import hmac
from ipaddress import ip_address
from urllib.parse import urlsplit

from agentd.config import Settings
from agentd.config.values import Address
from agentd.runtime.principals import OPERATOR, Principal


def identify(settings: Settings, authorization: str | None, peer: str | None) -> Principal | None:
    """The sender, by the first rule that matches; None for nobody known.

    `authorization`: the header. `peer`: the address of the other end, None where there is none to know. Without any
    rules whoever comes from this machine is the operator.
    """
    rules = settings.a2a.principals
    if not rules:
        return OPERATOR if peer is not None and is_loopback(peer) else None
    token = _bearer(authorization)
    for rule in rules:
        if rule.match.any:
            return Principal(rule.id, rule.role)
        # Compared in constant time: how long it takes tells nothing of the token.
        given = rule.match.bearer
        if given is not None and token is not None and hmac.compare_digest(token, given.reveal().encode()):
            return Principal(rule.id, rule.role)
    return None


def is_foreign(origin: str | None, listen: Address | None) -> bool:
    """Whether a browser says that a page of somebody else's sends this request. Such a page could otherwise speak to a
    listener on loopback in the name of whoever looks at it."""
    if origin is None:
        return False
    try:
        host = urlsplit(origin).hostname
    except ValueError:
        return True
    return host is None or not (is_loopback(host) or (listen is not None and host == listen.host))


def is_loopback(host: str) -> bool:
    """Whether a host is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _bearer(authorization: str | None) -> bytes | None:
    scheme, _, token = (authorization or "").partition(" ")
    return token.strip().encode("latin-1", "replace") if scheme.lower() == "bearer" and token.strip() else None
