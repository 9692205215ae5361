"""Sends recorded requests of the real clients to our servers: answers have the recorded shape.

``tests/golden`` has the answers of a real 5.5.0 (names of the fields, body or none). The same
requests go to our servers; an answer with a recorded code must have a recorded shape. No Java runs.
"""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.interop.ask import ask, await_registered
from tests.interop.ours import OurBroker, OurNameServer
from tests.reference import frame as wire
from tests.reference import golden

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.reference.golden import GoldenFrame

Shape = tuple[frozenset[str], bool]

CREATE_TOPIC = 17
SEND = 310
PULLS = (11, 361)
POP = (200050, 200051)
HOLD = 2
"""Bit of a pull's sysFlag: the broker may hold it."""

LAST = (35, 104, 205, 215, 216, 207)
"""Codes that remove objects that others need: sent last."""

BY_MOOD = frozenset({"transactionId", "recallHandle", "TRACE_ON", "MSG_REGION", "IS_SUB_CHANGE"})
"""Fields that depend on settings, version or history, not on the request."""

NOT_YET = 3


def shape(one: wire.Frame) -> Shape:
    """Return the names of the fields and whether there is a body."""
    return frozenset(one.fields or {}) - BY_MOOD, one.body is not None


def recorded_shapes(link: str) -> dict[tuple[int, int], set[Shape]]:
    """Return the real servers' answers: request code and response code to shapes."""
    found: dict[tuple[int, int], set[Shape]] = {}
    for row in golden.frames():
        if row.kind == "response" and row.sender == "server" and row.link == link:
            found.setdefault((row.request, row.code), set()).add(shape(wire.decode(row.raw)))
    return found


def requests(link: str) -> list[GoldenFrame]:
    """Return the requests of the real 5.5.0 clients, the destructive ones last."""
    rows = [
        row
        for row in golden.frames()
        if (row.version, row.link, row.sender) == ("5.5.0", link, "client")
        and row.kind == "request"
        and row.request not in POP
    ]
    return sorted(rows, key=lambda row: (row.request in LAST, row.request != SEND))


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, str]]:
    """Our name server and broker with the topics that the recorded requests name."""
    with OurNameServer() as names, OurBroker(names.address) as broker:
        await_registered(names.address, broker.address)
        for topic in ("Recorded", "Ordered", "Asked", "MadeBySend", "Closed"):
            fields = {
                "topic": topic,
                "defaultTopic": "TBW102",
                "readQueueNums": "4",
                "writeQueueNums": "4",
                "perm": "6",
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0",
                "order": "false",
            }
            answer = ask(broker.address, wire.Frame(code=CREATE_TOPIC, version=513, fields=fields))
            assert answer.code == 0
        yield {"namesrv": names.address, "broker": broker.address}


def question(row: GoldenFrame) -> wire.Frame:
    """Return the recorded request, changed so that it is not held."""
    one = wire.decode(row.raw)
    if row.request in PULLS and one.fields is not None:
        flag = int(one.fields["sysFlag"]) & ~HOLD
        return replace(one, fields={**one.fields, "sysFlag": str(flag)})
    return one


def ask_on(stream: socket.socket, one: wire.Frame) -> wire.Frame:
    """Send a request on a connection; ignore the server's own requests in between."""
    stream.sendall(wire.encode(one))
    with stream.makefile("rb", buffering=0) as source:
        while True:
            head = read_whole(source, 4)
            answer = wire.decode(head + read_whole(source, int.from_bytes(head, "big")))
            if answer.is_response and answer.opaque == one.opaque:
                return answer


def read_whole(source: socket.SocketIO, size: int) -> bytes:
    """Read exactly `size` bytes."""
    data = b""
    while len(data) < size:
        part = source.read(size - len(data))
        assert part, "the server closed the connection"
        data += part
    return data


@pytest.mark.parametrize("link", ["namesrv", "broker"])
def test_answers_have_the_shape_that_the_real_servers_gave(
    servers: dict[str, str], link: str
) -> None:
    known = recorded_shapes(link)
    host, port = servers[link].split(":")
    wrong, compared, refused = [], set(), set()
    with socket.create_connection((host, int(port)), timeout=10) as stream:
        for row in requests(link):
            answer = ask_on(stream, question(row))
            if answer.code == NOT_YET:
                refused.add(row.request)
                continue
            shapes = known.get((row.request, answer.code))
            if shapes is None:
                continue
            compared.add(row.request)
            if shape(answer) not in shapes:
                wrong.append((str(row), answer.code, answer.remark, shape(answer), shapes))
    assert wrong == []
    assert len(compared) > {"namesrv": 10, "broker": 30}[link], (compared, refused)
