"""Reaches one server: resolves its name, connects, and checks that it speaks RocketMQ's protocol.

It does not use the client's sockets: a diagnosis needs the failed step and the bytes of an unknown
server.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from pyrmq import _core
from pyrmq._client.security.effective import chosen_tls
from pyrmq.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Dialed", "dial", "is_container_bridge", "split"]

Step = Literal["address", "name", "connection", "silence", "protocol", "answered"]
"""How far a request came: the address cannot be read, its name does not resolve, no connection, no
answer in time, an answer in another protocol, an answer."""

_BRIDGES = (ipaddress.ip_network("172.17.0.0/16"), ipaddress.ip_network("192.168.65.0/24"))
"""Networks that Docker and Docker Desktop give to containers unless they are configured."""
_MAX_FRAME = 32 << 20

_Address = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]
"""What `socket.getaddrinfo` returns for an address."""


@dataclass(frozen=True, slots=True)
class Dialed:
    """How far one request came.

    Attributes:
        step: The step at which it ended.
        detail: What happened there.
        answer: The answer, if there is one.
        seconds: Time from the connection to the answer.
    """

    step: Step
    detail: str = ""
    answer: _core.Command | None = None
    seconds: float = 0.0


def split(address: str) -> tuple[str, int]:
    """Split `host:port`.

    Raises:
        ValueError: It is another text.

    Example:
        >>> split("[::1]:9876")
        ('::1', 9876)
    """
    host, colon, port = address.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit():
        raise ValueError(f"`{address}` is not host:port")
    if not 0 < int(port) < 65536:
        raise ValueError(f"`{address}`: a port is 1 to 65535")
    return host, int(port)


def is_container_bridge(host: str) -> bool:
    """Say whether a host is in a container's network that this machine is not part of.

    No packet is sent: a datagram socket's own address shows which network the system would use.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    network = next((one for one in _BRIDGES if address in one), None)
    if network is None:
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 9))
        except OSError:
            return True
        return ipaddress.ip_address(probe.getsockname()[0]) not in network


def dial(address: str, code: int, timeout: float) -> Dialed:
    """Send one request without fields, and return how far it came.

    Args:
        address: `host:port`.
        code: Request code.
        timeout: Seconds for all of it.
    """
    until = monotonic() + timeout
    try:
        host, port = split(address)
    except ValueError as error:
        return Dialed("address", str(error))
    found = _resolved(host, port, timeout)
    if isinstance(found, str):
        return Dialed("name", f"{host}: {found}")
    failed = Dialed("connection", "no address")
    for family, kind, protocol, _, where in found:
        with socket.socket(family, kind, protocol) as link:
            link.settimeout(max(0.05, until - monotonic()))
            try:
                link.connect(where)
            except OSError as error:
                failed = Dialed("connection", _why(error, timeout))
                continue
            return _secured(link, host, code, until)
    return failed


def _resolved(host: str, port: int, timeout: float) -> Sequence[_Address] | str:
    """Return the addresses of a name, or why there are none.

    The system's resolver takes no time limit and may wait for a silent name server for half a
    minute, so it runs in a daemon thread.
    """
    answers: SimpleQueue[Sequence[_Address] | str] = SimpleQueue()

    def resolve() -> None:
        try:
            answers.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            answers.put(getattr(error, "strerror", None) or str(error))

    Thread(target=resolve, name="pyrmq-doctor-name", daemon=True).start()
    try:
        return answers.get(timeout=timeout)
    except Empty:
        return f"the name servers of the system (DNS) do not answer within {timeout:g} s"


def _secured(link: socket.socket, host: str, code: int, until: float) -> Dialed:
    """Use TLS if the environment asks for it."""
    tls = chosen_tls()
    if tls is None:
        return _request(link, code, until)
    try:
        with tls.context().wrap_socket(link, server_hostname=tls.server_name or host) as through:
            return _request(through, code, until)
    except TimeoutError:
        return Dialed("silence", "it accepts connections but does not answer a TLS handshake")
    except OSError as error:
        reason = getattr(error, "verify_message", "") or error.strerror or str(error)
        return Dialed("protocol", f"the TLS handshake failed: {reason}")


def _why(error: OSError, timeout: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no connection within {timeout:g} s: a firewall drops packets, or the host is down"
    if error.errno == errno.ECONNREFUSED:
        return "the connection is refused: no program listens there"
    return error.strerror or str(error)


def _request(link: socket.socket, code: int, until: float) -> Dialed:
    began, seen = monotonic(), b""
    try:
        link.sendall(_core.Command(code, {}, None, opaque=1).encode())
        while True:
            link.settimeout(max(0.05, until - monotonic()))
            part = link.recv(1 << 16)
            seen += part
            unexpected = _unexpected(seen, ended=not part)
            if unexpected:
                return Dialed("protocol", unexpected)
            decoded = _core.Command.decode(seen)
            if decoded is not None:
                return Dialed("answered", answer=decoded[0], seconds=monotonic() - began)
    except TimeoutError:
        return Dialed("silence", "it accepts connections but does not answer")
    except OSError as error:
        return Dialed("protocol", f"it closed the connection: {error.strerror or error}")
    except RmqError as error:
        return Dialed("protocol", f"it answered {seen[:16]!r}: {error}")


def _unexpected(seen: bytes, *, ended: bool) -> str:
    """Return what answered, if it cannot be RocketMQ."""
    if seen.startswith((b"HTTP/", b"<")):
        line = seen.split(b"\r\n")[0][:60].decode("latin-1")
        return f"an HTTP server or proxy answered `{line}`"
    if seen[:2] in (b"\x15\x03", b"\x16\x03"):
        return "it speaks TLS, but this request was plain"
    if seen.startswith(b"SSH-"):
        return "an SSH server answered"
    if len(seen) >= 4 and not 4 <= int.from_bytes(seen[:4]) <= _MAX_FRAME:
        return f"it answered {seen[:16]!r}, which is not a RocketMQ frame"
    if ended:
        return (
            "it closed the connection without an answer: it may accept only TLS (--tls, PYRMQ_TLS)"
            if not seen
            else (f"it closed the connection in the middle of an answer, after {len(seen)} bytes")
        )
    return ""
