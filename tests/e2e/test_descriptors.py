"""A broker that may open few files, and more idle connections than that."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tests.e2e.few_files import LIMIT, ULIMIT, few_files
from tests.e2e.wire import await_true
from tests.interop.ours import OurNameServer, python_path

from pyrmq import Producer

if TYPE_CHECKING:
    from pathlib import Path

IDLE = 400
TOPICS = 30


def send(producer: Producer, begin: int, end: int) -> None:
    for topic in range(begin, end):
        for number in range(8):
            producer.send(f"t-{topic}", b"x" * 1000, keys=[f"k-{number}"])


def test_idle_connections_take_no_descriptor_from_the_store(tmp_path: Path) -> None:
    with (
        OurNameServer() as names,
        few_files(names.address, tmp_path / "store") as broker,
        Producer(name_server=names.address, group="g") as producer,
    ):
        await_true(lambda: broker.health()["registered"] == 1)
        send(producer, 0, 1)
        with ExitStack() as idle:
            for _ in range(IDLE):
                idle.enter_context(socket.create_connection((broker.host, broker.port)))
            await_true(lambda: broker.health()["descriptors"]["refused"] > IDLE / 4)
            send(producer, 1, TOPICS)
            queues = broker.health()["store"]["queues"]
            assert queues > LIMIT / 4, "more queue files than may be kept open"
            health = broker.health()
            assert health["store"]["read_only"] is None
            assert health["descriptors"]["limit"] == LIMIT
            assert health["descriptors"]["refused"] > IDLE / 4
            assert 0 < health["descriptors"]["reserved"] < LIMIT / 2
        with Producer(name_server=names.address, group="later") as later:
            send(later, TOPICS, TOPICS + 2)
        health = broker.health()
        assert not health["store"]["has_failed"]
        assert health["store"]["read_only"] is None


def test_a_name_server_raises_its_limit_of_descriptors_to_the_hard_one() -> None:
    program = (
        "import resource\n"
        "from pyrmq import NameServer\n"
        "with NameServer(listen_port=0, bind_address='127.0.0.1'):\n"
        "    print(*resource.getrlimit(resource.RLIMIT_NOFILE))\n"
    )
    done = subprocess.run(
        ["sh", "-c", f'{ULIMIT}; exec "$@"', "sh", sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
        env={**os.environ, "PYTHONPATH": python_path()},
    )
    assert done.stdout.split() == [str(LIMIT)] * 2
