"""A load balancer in front of servers: it relays connections and names their clients."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from tests.e2e.relay import BROKER_IP, listening

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

BALANCER = BROKER_IP
"""Address at which a balancer listens, on the port of its server."""
SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"


def text_header(client: str, port: int) -> bytes:
    """Version 1 of the header."""
    return f"PROXY TCP4 {client} {BALANCER} {port} 1\r\n".encode()


def binary_header(client: str, port: int) -> bytes:
    """Version 2 of the header, with an empty type-length-value after the addresses."""
    addresses = socket.inet_aton(client) + socket.inet_aton(BALANCER) + struct.pack(">HH", port, 1)
    rest = addresses + b"\x04\x00\x00"
    return SIGNATURE + b"\x21\x11" + struct.pack(">H", len(rest)) + rest


def carry(source: socket.socket, target: socket.socket) -> None:
    """Pass bytes on until the source ends; then end both sides."""
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextmanager
def balanced(
    ports: Sequence[int],
    client: str,
    header: Callable[[str, int], bytes] = binary_header,
) -> Iterator[None]:
    """Relay `127.0.0.2:port` to `127.0.0.1:port`, with a header that names `client`."""

    def relay(port: int, one: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", port)) as server:
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            told = header(client, one.getpeername()[1])
            # The server must wait for the rest, wherever the network cuts.
            server.sendall(told[:7])
            server.sendall(told[7:])
            backward = threading.Thread(target=carry, args=(server, one))
            backward.start()
            carry(one, server)
            backward.join()

    with ExitStack() as stack:
        for port in ports:
            serve = lambda one, port=port: relay(port, one)  # noqa: E731 - one for each port
            stack.enter_context(listening(serve, BALANCER, port))
        yield
