"""The real 5.5.0 name server and ours give equal answers to random sequences of requests.

`--name-sequences` sets their number (make sequences: 10,000). Each has a number, so
`--name-sequences-from` runs a failing one again.
"""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from pyrmq.cli import main
from pyrmq.codes import RequestCode
from tests.e2e.wire import Connection
from tests.interop import artifacts
from tests.interop.name_bodies import TopicConfig, Version, body_of
from tests.interop.name_sequences import Sequence, Side
from tests.interop.ours import OurNameServer
from tests.interop.rocketmq import JavaNameServer
from tests.reference import frame as wire

if TYPE_CHECKING:
    from collections.abc import Iterator

STEPS = 30
NOTICE = 905
WAIT_SECONDS = 20.0
Sides = tuple[Side, Side]


@pytest.fixture(scope="module")
def sides() -> Iterator[Sides]:
    """Yield the real name server and ours."""
    artifacts.require_java()
    properties = {"scanNotActiveBrokerInterval": 100, "notifyMinBrokerIdChanged": "true"}
    with ExitStack() as stack:
        real = stack.enter_context(JavaNameServer("5.5.0", properties=properties))
        own = stack.enter_context(OurNameServer(properties=properties))
        yield Side(real.address), Side(own.address)


@pytest.mark.timeout(3600)
def test_random_sequences_are_answered_alike(sides: Sides, pytestconfig: pytest.Config) -> None:
    first = int(pytestconfig.getoption("--name-sequences-from"))
    for seed in range(first, first + int(pytestconfig.getoption("--name-sequences"))):
        Sequence(seed, sides).play(STEPS)


def register(connection: Connection, name: str, broker_id: int, address: str, **more: str) -> None:
    """Register a broker with two topics."""
    topics = [TopicConfig(f"{name}-{number}", 4, 4, 6, 0) for number in range(2)]
    body, check = body_of(topics, Version(0, 1), version=513, compressed=False)
    fields = {
        "brokerName": name,
        "brokerAddr": address,
        "clusterName": f"{name}-cluster",
        "haServerAddr": f"{address}2",
        "brokerId": str(broker_id),
        "compressed": "false",
        "bodyCrc32": str(check),
        **more,
    }
    answer = connection.ask(RequestCode.REGISTER_BROKER, fields, body)
    assert answer.code == 0, answer.remark


def members(side: Side, name: str) -> bytes:
    """Return the body of the answer to request 901."""
    fields = {"brokerName": name, "clusterName": f"{name}-cluster"}
    with Connection(side.address) as connection:
        return connection.ask(RequestCode.GET_BROKER_MEMBER_GROUP, fields).body or b""


def test_a_silent_broker_is_taken_out_by_both_and_its_connection_closed(sides: Sides) -> None:
    for side in sides:
        with Connection(side.address) as connection:
            register(connection, "silent", 0, "10.9.9.9:1091", heartbeatTimeoutMillis="1500")
            assert b"10.9.9.9" in members(side, "silent")
            until = time.monotonic() + WAIT_SECONDS
            while b"10.9.9.9" in members(side, "silent"):
                assert time.monotonic() < until, side.address
                time.sleep(0.02)
            with pytest.raises(ConnectionError):
                connection.read()


class Listener:
    """A broker's port that records the notices it receives."""

    def __init__(self) -> None:
        """Open the port."""
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(WAIT_SECONDS)
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._peer: socket.socket | None = None

    def next(self) -> dict[str, str]:
        """Wait for a notice and return its fields."""
        if self._peer is None:
            self._peer, _ = self._socket.accept()
            self._peer.settimeout(WAIT_SECONDS)
        head = self._read(4)
        one = wire.decode(head + self._read(int.from_bytes(head, "big")))
        assert (one.code, one.is_oneway) == (NOTICE, True)
        return {key: value for key, value in (one.fields or {}).items() if value}

    def _read(self, size: int) -> bytes:
        assert self._peer is not None
        data = b""
        while len(data) < size:
            part = self._peer.recv(size - len(data))
            assert part, "the name server closed the connection"
            data += part
        return data

    def close(self) -> None:
        """Close the port."""
        for one in (self._socket, self._peer):
            if one is not None:
                one.close()


def notices(side: Side, name: str) -> list[dict[str, str]]:
    """Return the slaves' notices when a master registers and leaves, with addresses by role."""
    listeners = [Listener() for _ in range(3)]
    acting = {"enableActingMaster": "true"}
    seen = []
    try:
        with Connection(side.address) as first, Connection(side.address) as second:
            with Connection(side.address) as master:
                register(first, name, 2, listeners[2].address, **acting)
                register(second, name, 1, listeners[1].address, **acting)
                seen.append(listeners[2].next())
                register(master, name, 0, listeners[0].address, **acting)
                seen += [listeners[1].next(), listeners[2].next()]
            seen += [listeners[1].next(), listeners[2].next()]
    finally:
        for listener in listeners:
            listener.close()
    parts = {listener.address: f"broker-{at}" for at, listener in enumerate(listeners)}
    parts |= {f"{address}2": f"{part}-ha" for address, part in parts.items()}
    return [{key: parts.get(value, value) for key, value in one.items()} for one in seen]


def test_brokers_are_told_of_a_new_lowest_id_in_the_same_words(sides: Sides) -> None:
    real, own = (notices(side, "told") for side in sides)
    assert own == real
    assert real[-1] == {
        "minBrokerId": "1",
        "minBrokerAddr": "broker-1",
        "offlineBrokerAddr": "broker-0",
    }


def test_status_shows_the_brokers_of_the_real_name_server(
    sides: Sides, capsys: pytest.CaptureFixture[str]
) -> None:
    real, _ = sides
    with Connection(real.address) as connection:
        register(connection, "shown", 0, "10.8.8.8:1091")
        assert main(["nameserver", "status", "-n", real.address, "--interval", "0.01"]) == 0
    told = capsys.readouterr().out
    assert "not a name server of pyrmq" in told
    (row,) = [line.split() for line in told.splitlines() if "10.8.8.8" in line]
    assert row[:4] == ["shown-cluster", "shown", "0", "10.8.8.8:1091"]
