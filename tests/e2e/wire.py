"""Sends requests to a server over a socket, without a client, for the tests of rows."""

from __future__ import annotations

import json
import socket
import threading
import zlib
from typing import TYPE_CHECKING, Self

from pyrmq import _core
from pyrmq.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Mapping

V4_6_1, V4_9_1, V5_5_0 = 335, 395, 513
"""Versions of RocketMQ, as commands have them."""

_TIMEOUT = 10.0


class Connection:
    """A connection to a server that sends frames and reads answers, one at a time."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=_TIMEOUT)
        self._buffer = b""
        self._opaque = 0

    def ask(
        self,
        code: int,
        fields: Mapping[str, str] | None = None,
        body: bytes | None = None,
        *,
        version: int = V5_5_0,
        serialize_type: str = "JSON",
        language: str = "JAVA",
        timeout: float = _TIMEOUT,
    ) -> _core.Command:
        """Send a request and wait for its answer, at most `timeout` seconds for each part of it."""
        self._socket.settimeout(timeout)
        self.send(code, fields, body, version, serialize_type, language)
        while True:
            answer = self.read()
            if answer.is_response and answer.opaque == self._opaque:
                return answer

    def send(
        self,
        code: int,
        fields: Mapping[str, str] | None = None,
        body: bytes | None = None,
        version: int = 513,
        serialize_type: str = "JSON",
        language: str = "JAVA",
    ) -> None:
        """Send a request."""
        self._opaque += 1
        request = _core.Command(
            code,
            dict(fields or {}),
            body,
            opaque=self._opaque,
            version=version,
            serialize_type=serialize_type,
            language=language,
        )
        self._socket.sendall(request.encode())

    def write(self, frames: bytes) -> None:
        """Send what is encoded already."""
        self._socket.sendall(frames)

    def frame(self, code: int) -> bytes:
        """Return the bytes of a request without fields."""
        return _core.Command(code, {}, None, opaque=1, version=513).encode()

    def read(self) -> _core.Command:
        """Wait for the next frame."""
        while True:
            decoded = _core.Command.decode(self._buffer)
            if decoded is not None:
                command, used = decoded
                self._buffer = self._buffer[used:]
                return command
            data = self._socket.recv(65_536)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._buffer += data

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the socket."""
        self.close()


def ask(
    address: str, code: int, fields: Mapping[str, str] | None = None, body: bytes | None = None
) -> _core.Command:
    """Send one request on a new connection."""
    with Connection(address) as connection:
        return connection.ask(code, fields, body)


def register(
    connection: Connection,
    broker: str,
    topics: list[str],
    *,
    sys_flag: int = 0,
    port: int = 10000,
    zone: str = "",
    perm: int = 6,
) -> None:
    """Register a master with these topics, two or more; it lives as long as the connection."""
    configs = {
        topic: {
            "topicName": topic,
            "readQueueNums": 4,
            "writeQueueNums": 4,
            "perm": perm,
            "topicSysFlag": sys_flag,
            "topicFilterType": "SINGLE_TAG",
            "order": False,
        }
        for topic in topics
    }
    body = json.dumps(
        {
            "filterServerList": [],
            "topicConfigSerializeWrapper": {
                "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 1_700_000_000_000},
                "topicConfigTable": configs,
            },
        }
    ).encode()
    answer = connection.ask(
        RequestCode.REGISTER_BROKER,
        {
            "brokerName": broker,
            "brokerAddr": f"127.0.0.1:{port}",
            "clusterName": "C",
            "haServerAddr": "127.0.0.1:10912",
            "brokerId": "0",
            "__ZONE_NAME": zone,
            "compressed": "false",
            "bodyCrc32": str(zlib.crc32(body) & 0x7FFF_FFFF),
        },
        body,
    )
    assert answer.code == 0, answer.remark


def body_of(answer: _core.Command) -> object:
    """The JSON body of an answer."""
    assert answer.code == 0, answer.remark
    assert answer.body is not None
    return json.loads(answer.body)


def await_true(condition: object, seconds: float = 10.0) -> None:
    """Wait until a condition holds; check it at short intervals."""
    assert callable(condition)
    wait = threading.Event()
    for _ in range(int(seconds / 0.01)):
        if condition():
            return
        wait.wait(0.01)
    raise AssertionError(f"it did not become true within {seconds} s")
