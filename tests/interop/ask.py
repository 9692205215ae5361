"""Sends one request to a server with the plain-Python codec, without a client."""

from __future__ import annotations

import socket
import time

from tests.reference import frame as wire

GET_BROKER_CLUSTER_INFO = 106
TIMEOUT_S = 5.0


def ask(address: str, request: wire.Frame, timeout: float = TIMEOUT_S) -> wire.Frame:
    """Send one request on a new connection and return the answer."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout) as connection:
        connection.sendall(wire.encode(request))
        with connection.makefile("rb") as stream:
            head = stream.read(4)
            return wire.decode(head + stream.read(int.from_bytes(head, "big")))


def await_registered(name_server: str, broker: str, seconds: float = 70.0) -> None:
    """Wait until a name server knows a broker's address.

    A Java broker whose first registration fails tries again after thirty seconds.

    Raises:
        TimeoutError: it does not within that time.
    """
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer = ask(name_server, wire.Frame(code=GET_BROKER_CLUSTER_INFO, version=407))
        if broker.encode() in (answer.body or b""):
            return
        time.sleep(0.02)
    raise TimeoutError(f"{broker} is not registered at {name_server} after {seconds} s")
