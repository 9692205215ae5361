"""Runs the application until SIGINT or SIGTERM."""

from __future__ import annotations

import secrets
import signal
import socket
from typing import TYPE_CHECKING

import uvicorn

from pyrmq.dashboard.app import application
from pyrmq.dashboard.cluster import Cluster
from pyrmq.dashboard.guard import Permissions
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_TOKEN_BYTES = 24


def permissions_for(host: str, allowed: Iterable[str], *, write: bool) -> Permissions:
    """Return the checks of requests for a dashboard that listens on `host`.

    On loopback every user of this machine may read. Elsewhere reading needs the token, too.

    Example:
        >>> permissions_for("127.0.0.1", [], write=False).token is None
        True
    """
    is_local = host in _LOOPBACK
    names = {name.lower() for name in allowed} | _LOOPBACK
    if host not in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        names.add(host.lower())
    token = secrets.token_urlsafe(_TOKEN_BYTES) if write or not is_local else None
    return Permissions(frozenset(names), token, may_write=write, reads_need_token=not is_local)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        ConfigError: The port is taken, or the host has no such address.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror or error}. Fix: another --port or "
            "--host, or end the program that uses it"
        ) from error


def server_for(
    name_server: str,
    permissions: Permissions,
    bound: socket.socket,
    *,
    timeout: float,
    ready: Callable[[str], None],
) -> uvicorn.Server:
    """The server of a cluster's dashboard; its `run` serves until `should_exit` is set.

    Args:
        name_server: The cluster's name servers.
        permissions: What a request may do.
        bound: The socket that `run` gets.
        timeout: Seconds to wait for each answer of a broker or name server.
        ready: Called with the page's address, once it answers.
    """
    config = uvicorn.Config(
        application(Cluster(name_server, timeout), permissions),
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        proxy_headers=False,
        timeout_graceful_shutdown=3,
    )

    class _Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            ready(address_of(bound))

    return _Server(config)


def serve(server: uvicorn.Server, bound: socket.socket) -> None:
    """Run a server on the main thread until SIGINT or SIGTERM."""
    # uvicorn ends at these signals and raises them again, for handlers that were there before it.
    handlers = {name: signal.signal(name, _ignore) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.run(sockets=[bound])
    finally:
        for name, handler in handlers.items():
            signal.signal(name, handler)


def address_of(bound: socket.socket) -> str:
    """The address of the page that this socket serves."""
    host, port = bound.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
        host = socket.gethostname()
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def _ignore(*_: object) -> None:
    pass
