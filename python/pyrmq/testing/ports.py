"""The addresses of a cluster's servers: free ports, and ports kept while a server is stopped."""

from __future__ import annotations

import socket
from contextlib import ExitStack

from pyrmq.errors import ServerError

HOST = "127.0.0.1"
OUTSIDE = "127.0.0.2"
"""The address of links to brokers: a broker can register another address, but no other port."""
FAST_DISTANCE = 2
_PORT_TRIES = 32


def free_pair() -> int:
    """Find a port that is free here and outside, and whose fast port is free too.

    Raises:
        ServerError: this machine has no such address or port.
    """
    failure: OSError | None = None
    for _ in range(_PORT_TRIES):
        with ExitStack() as stack:
            port = 0
            try:
                for distance in (0, FAST_DISTANCE):
                    for host in (OUTSIDE, HOST):
                        held = stack.enter_context(socket.socket())
                        held.bind((host, port and port - distance))
                        port = port or held.getsockname()[1]
            except OSError as error:
                failure = error
            else:
                return port
    raise ServerError(
        f"found no ports for links at {OUTSIDE}: {failure}. Where that address is missing (macOS), "
        f"add it: sudo ifconfig lo0 alias {OUTSIDE}"
    )


class Ports:
    """Reserves the ports of a stopped server; connections are refused."""

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def hold(self, host: str, *ports: int) -> None:
        """Bind them without listening; skip ports that are taken."""
        for port in ports:
            held = socket.socket()
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                held.bind((host, port))
            except OSError:
                held.close()
            else:
                self._held.append(held)

    def release(self) -> None:
        """Release them."""
        while self._held:
            self._held.pop().close()
