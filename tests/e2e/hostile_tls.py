"""Peers that attack TLS ports: ``python -m tests.e2e.hostile_tls ADDRESSES SECONDS HELD SEED``.

``ADDRESSES`` has commas between the ports; each attack takes one of them by chance.

A process of its own, at the lowest priority, so that it slows the clients whose times are measured
no more than strangers on other machines would. It holds ``HELD`` connections in the middle of a
handshake all the time, and runs every other attack in turn. It prints one JSON object with how
often each was run.
"""

from __future__ import annotations

import json
import os
import random
import resource
import socket
import ssl
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress

from pyrmq.remoting import Command

__all__ = ["hello", "main"]

HANDSHAKE, FRAME = 0x16, 16 << 20
_CODES = (10, 11, 17, 25, 34, 105, 310, 3001, 200050)


def hello(
    name: str = "localhost", most: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED
) -> bytes:
    """Return the first record of a handshake that offers versions up to one."""
    context = ssl.create_default_context()
    context.maximum_version = most
    to_us, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    link = context.wrap_bio(to_us, to_server, server_hostname=name)
    with suppress(ssl.SSLWantReadError):
        link.do_handshake()
    return to_server.read()


class Attack:
    """The attacks on some ports."""

    def __init__(self, addresses: list[str], seed: int) -> None:
        self._addresses = addresses
        self._random = random.Random(seed)
        self._hello = hello()
        self._held: list[socket.socket] = []
        self._context = ssl.create_default_context()
        self._context.check_hostname, self._context.verify_mode = False, ssl.CERT_NONE
        self.count: Counter[str] = Counter()

    def hold(self, most: int, room: float) -> None:
        """Keep this many connections in the middle of a handshake, for at most a time."""
        until = time.monotonic() + room
        held = [peer for peer in self._held if not _is_closed(peer)]
        self.count["half-open ended by the server"] += len(self._held) - len(held)
        self._held = held
        while len(self._held) < most and time.monotonic() < until:
            with suppress(OSError):
                made = self._plain()
                made.sendall(self._hello[: self._random.randrange(1, len(self._hello))])
                made.setblocking(False)
                self._held.append(made)
                self.count["half-open"] += 1
        self.count["half-open at once, at most"] = max(
            self.count["half-open at once, at most"], len(self._held)
        )

    def run(self) -> None:
        """Run one of the attacks."""
        attack = self._random.choice(
            (
                self.garbage,
                self.mutated,
                self.slow,
                self.plain,
                self.hello_within,
                self.renegotiation,
                self.unsigned,
                self.forged,
                self.bomb,
                self.nested,
                self.torn,
            )
        )
        self.count[attack.__name__] += 1
        with suppress(OSError, ssl.SSLError):
            attack()

    def _plain(self) -> socket.socket:
        host, _, port = self._random.choice(self._addresses).rpartition(":")
        return socket.create_connection((host, int(port)), 5)

    def _secure(self, *, old: bool = False) -> ssl.SSLSocket:
        context = self._context
        if old:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        plain = self._plain()
        try:
            return context.wrap_socket(plain)
        except BaseException:
            plain.close()
            raise

    def garbage(self) -> None:
        """Bytes that only begin like a handshake."""
        with self._plain() as peer:
            peer.sendall(bytes([HANDSHAKE]) + self._random.randbytes(self._random.randrange(4000)))
            _drain(peer)

    def mutated(self) -> None:
        """A first record with some bytes changed."""
        data = bytearray(self._hello)
        for _ in range(self._random.randrange(1, 9)):
            data[self._random.randrange(len(data))] = self._random.randrange(256)
        with self._plain() as peer:
            peer.sendall(data)
            _drain(peer)

    def slow(self) -> None:
        """A first record in pieces of a byte."""
        with self._plain() as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for at in range(min(len(self._hello), 60)):
                peer.sendall(self._hello[at : at + 1])
            time.sleep(0.01)

    def plain(self) -> None:
        """A request without TLS."""
        with self._plain() as peer:
            peer.sendall(Command(self._random.choice(_CODES)).encode())
            _drain(peer)

    def hello_within(self) -> None:
        """Another handshake in the middle of a session, encrypted with a key that no side has."""
        with self._secure(old=self._random.random() < 0.5) as peer:
            raw = socket.socket(fileno=os.dup(peer.fileno()))
            with raw:
                raw.sendall(self._hello)
                _drain(raw)

    def renegotiation(self) -> None:
        """Another handshake in the middle of a session, asked for within it."""
        if renegotiated(self._random.choice(self._addresses), 0.3) is None:
            self.count["renegotiations not asked for"] += 1

    def unsigned(self) -> None:
        """Requests without a user, many on one connection."""
        with self._secure() as peer:
            for _ in range(self._random.randrange(1, 50)):
                peer.sendall(Command(self._random.choice(_CODES), {"topic": "orders"}).encode())
            _drain(peer)

    def forged(self) -> None:
        """Requests in a user's name with a wrong signature."""
        fields: dict[str, str | int | bool | None] = {"AccessKey": "admin", "topic": "orders"}
        with self._secure() as peer:
            for _ in range(3):
                fields["Signature"] = self._random.choice(("", "x", "A" * 28, "=" * 5000))
                peer.sendall(Command(self._random.choice(_CODES), fields).encode())
            _drain(peer)

    def bomb(self) -> None:
        """A frame that claims 16 MiB, and one that claims 2 GiB."""
        with self._secure() as peer:
            size = self._random.choice((FRAME - 4, 2**31 - 1))
            peer.sendall(size.to_bytes(4, "big") + (200).to_bytes(4, "big") + b" " * 65_536)
            _drain(peer)

    def nested(self) -> None:
        """A header of nested arrays."""
        head = b'{"code":105,"extFields":' + b"[" * 60_000
        with self._secure() as peer:
            peer.sendall((len(head) + 4).to_bytes(4, "big") + len(head).to_bytes(4, "big") + head)
            _drain(peer)

    def torn(self) -> None:
        """Random bytes inside TLS."""
        with self._secure() as peer:
            peer.sendall(self._random.randbytes(self._random.randrange(1, 4000)))
            _drain(peer)


def renegotiated(address: str, seconds: float) -> bool | None:
    """Ask for a new handshake within a session of TLS 1.2, and wait some seconds for an answer.

    Returns:
        Whether the server began it; None if the session was not made, or did not get that far.
    """
    command = ["openssl", "s_client", "-connect", address, "-tls1_2", "-msg"]
    # Its end of input would close the session.
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as peer:
        assert peer.stdin is not None
        with suppress(BrokenPipeError):
            peer.stdin.write(b"R\n")
            peer.stdin.flush()
        try:
            peer.wait(seconds)
        except subprocess.TimeoutExpired:
            peer.kill()
        with suppress(BrokenPipeError):
            peer.stdin.close()
        assert peer.stdout is not None
        rest = peer.stdout.read().partition(b"RENEGOTIATING")[2]
    if b"ClientHello" not in rest:
        return None
    return b"ServerHello" in rest


def _drain(peer: socket.socket) -> None:
    peer.settimeout(0.2)
    with suppress(OSError):
        while peer.recv(65_536):
            pass


def _is_closed(peer: socket.socket) -> bool:
    try:
        if peer.recv(1, socket.MSG_PEEK):
            return False
    except BlockingIOError:
        return False
    except OSError:
        pass
    peer.close()
    return True


def main(addresses: list[str], seconds: float, held: int, seed: int) -> None:
    """Attack for a time; on a busy machine, until half of the connections were held at once."""
    os.nice(19)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    attack, end = Attack(addresses, seed), time.monotonic() + seconds
    name = "half-open at once, at most"
    while (now := time.monotonic()) < end or (attack.count[name] < held / 2 and now < end + 30):
        attack.hold(held, 2.0)
        attack.run()
    print(json.dumps(attack.count))  # noqa: T201 - the result


if __name__ == "__main__":
    main(sys.argv[1].split(","), float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
