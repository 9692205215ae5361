"""Whether clients can reach the address that a broker registers."""

from __future__ import annotations

_LOOPBACK = ("127.", "localhost", "[::1]", "::1")
# Networks that Docker and Docker Desktop give to containers unless they are configured.
_BRIDGES = ("172.17.", "192.168.65.")


def unreachable(address: str, name_servers: str | None) -> str | None:
    """Why clients elsewhere cannot reach a broker at an address; None if they may.

    Args:
        address: What the broker registers, ``host:port``.
        name_servers: ``host:port;host:port``; if all are on this machine, so are the clients.

    Example:
        >>> unreachable("127.0.0.1:10911", "127.0.0.1:9876") is None
        True
        >>> unreachable("127.0.0.1:10911", "10.0.0.5:9876")
        'it is the loopback address, which leads every client to its own machine'
    """
    named = [one.strip() for one in (name_servers or "").split(";") if one.strip()]
    if not named:
        return None
    if address.startswith(_BRIDGES):
        return "it is of a container's bridge network, which other machines do not know"
    if address.startswith(_LOOPBACK) and not all(one.startswith(_LOOPBACK) for one in named):
        return "it is the loopback address, which leads every client to its own machine"
    return None
