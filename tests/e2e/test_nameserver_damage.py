"""Recorded requests of real clients and brokers, damaged, on a name server's own port."""

from __future__ import annotations

import random
import socket
from typing import TYPE_CHECKING

import pytest
from tests.interop.ask import ask
from tests.reference import frame as wire
from tests.reference import golden

from pyrmq import NameServer

if TYPE_CHECKING:
    from collections.abc import Iterator

SEED = 7
EACH = 6
"""Damaged forms of each recorded frame."""

GET_BROKER_CLUSTER_INFO = 106


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    store = tmp_path_factory.mktemp("names") / "kvConfig.json"
    with NameServer(listen_port=0, bind_address="127.0.0.1", kv_config_path=store) as names:
        host, port = names.address.rsplit(":", 1)
        yield host, int(port)


def say(address: tuple[str, int], data: bytes) -> bytes:
    """Send bytes on a new connection; return all that comes back until the server closes it."""
    with socket.create_connection(address, 10) as connection:
        connection.sendall(data)
        try:
            connection.shutdown(socket.SHUT_WR)
            parts = []
            while part := connection.recv(65536):
                parts.append(part)
        except ConnectionError:
            # Closed with our bytes unread: the result of damaged lengths.
            return b""
    return b"".join(parts)


def damaged(raw: bytes, chance: random.Random) -> bytes:
    """Damage a frame in one of several ways."""
    data = bytearray(raw)
    kind = chance.randrange(5)
    place = chance.randrange(len(data))
    if kind == 0:
        data[place] ^= 1 << chance.randrange(8)
    elif kind == 1:
        del data[place:]
    elif kind == 2:
        data[0:8] = chance.randbytes(8)
    elif kind == 3:
        data[place : place + 8] = chance.randbytes(8)
    else:
        # The lengths are valid, the header or body is not.
        body = bytearray(data[8:])
        for _ in range(4):
            body[chance.randrange(len(body))] = chance.randrange(256)
        data[8:] = body
    return bytes(data)


def alive(address: tuple[str, int]) -> None:
    answer = say(address, wire.encode(wire.Frame(code=GET_BROKER_CLUSTER_INFO, version=513)))
    assert wire.decode(answer).code == 0


def test_damaged_frames_on_every_recorded_code_harm_nobody_else(
    address: tuple[str, int],
) -> None:
    chance = random.Random(SEED)
    rows = [
        row
        for row in golden.frames()
        if row.link == "namesrv" and row.kind == "request" and row.sender == "client"
    ]
    codes = {row.request for row in rows}
    assert len(codes) > 10
    for row in rows:
        for _ in range(EACH):
            say(address, damaged(row.raw, chance))
        alive(address)


@pytest.mark.parametrize("code", [*range(110), *range(200, 360), 900, 901, 904, 1001, 1012])
def test_every_code_answers_an_empty_request(address: tuple[str, int], code: int) -> None:
    answer = ask("{}:{}".format(*address), wire.Frame(code=code, version=513, fields={}))
    assert answer.is_response
    assert answer.code == 0 or answer.remark
