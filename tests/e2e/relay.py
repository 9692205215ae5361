"""Peers that a test starts: a listener, and a relay before a broker."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tests.reference.frame import Frame, decode, encode

from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from pyrmq.testing import Cluster

BROKER_IP = "127.0.0.2"
"""Address at which clients find the broker of `relayed`: the relay listens there."""
SENDS = {10, 310, 320, 324, 325}
"""Requests that store a message."""


@contextmanager
def listening(
    serve: Callable[[socket.socket], None], host: str = "127.0.0.1", port: int = 0
) -> Iterator[str]:
    """Pass each connection to `serve` in a thread; yield the address.

    A connection is closed when `serve` returns or raises, and all of them at the end of the block.
    """
    taken: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def accept() -> None:
        while True:
            try:
                one, _ = listener.accept()
            except OSError:
                return
            taken.append(one)
            threads.append(threading.Thread(target=attend, args=(one,)))
            threads[-1].start()

    def attend(one: socket.socket) -> None:
        with suppress(OSError):
            serve(one)
        one.close()

    with socket.create_server((host, port)) as listener:
        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield f"{host}:{listener.getsockname()[1]}"
        finally:
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            for one in taken:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join()


def frames(source: socket.socket) -> Iterator[bytes]:
    """Read whole frames until the peer ends."""
    with source.makefile("rb") as stream:
        while head := stream.read(4):
            yield head + stream.read(int.from_bytes(head, "big"))


@contextmanager
def relayed(
    change: Callable[[Frame], Frame | None], codes: Collection[int] = SENDS
) -> Iterator[Cluster]:
    """Run a cluster in which every answer to a send, or to `codes`, passes through `change`.

    If `change` returns None, the answer is lost and the client's connection is reset.
    """

    def serve(client: socket.socket) -> None:
        with socket.create_connection(("127.0.0.1", port)) as server:
            sends: set[int] = set()
            forward = threading.Thread(target=carry_requests, args=(client, server, sends))
            forward.start()
            try:
                carry_answers(server, client, sends)
            finally:
                with suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
                forward.join()

    def carry_answers(server: socket.socket, client: socket.socket, sends: set[int]) -> None:
        for whole in frames(server):
            answer = decode(whole)
            if answer.is_response and answer.opaque in sends:
                changed = change(answer)
                if changed is None:
                    # This makes a close a reset, like that of a killed process.
                    linger = struct.pack("ii", 1, 0)
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    return
                client.sendall(whole if changed is answer else encode(changed))
            else:
                client.sendall(whole)

    def carry_requests(client: socket.socket, server: socket.socket, sends: set[int]) -> None:
        with suppress(OSError):
            for whole in frames(client):
                request = decode(whole)
                if not request.is_response and request.code in codes:
                    sends.add(request.opaque)
                server.sendall(whole)
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)

    with cluster(broker_ip1=BROKER_IP) as running:
        port = int(running.broker.address.rpartition(":")[2])
        with listening(serve, BROKER_IP, port):
            yield running
