"""A broker that may open few files, and more idle connections than that."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from tests.e2e.wire import await_true
from tests.interop.ours import OurNameServer, python_path

from pyrmq import Producer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOST = "127.0.0.1"
LIMIT = 256
IDLE = 400
TOPICS = 30
# Serves, prints its address, and its health for each line of its input.
PROGRAM = """
import json, sys
from pyrmq import Broker
options = json.loads(sys.argv[1])
with Broker(**options) as broker:
    print(broker.address, flush=True)
    for line in sys.stdin:
        print(json.dumps(broker.health()), flush=True)
"""


class FewFiles:
    """A broker in a process that may open 256 files."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        """Read its address."""
        self._process = process
        self.host, port = self._line().rsplit(":", 1)
        self.port = int(port)

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the broker has ended"
        return line.strip()

    def health(self) -> dict[str, Any]:
        """Request its health."""
        assert self._process.stdin is not None
        self._process.stdin.write("health\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._line())
        return answer


@contextmanager
def few_files(name_server: str, store: Path) -> Iterator[FewFiles]:
    options = {
        "listen_port": 0,
        "bind_address": HOST,
        "broker_ip1": HOST,
        "namesrv_addr": name_server,
        "store_path_root_dir": str(store),
        "mapped_file_size_commit_log": 1 << 16,
        "mapped_file_size_consume_queue": 2000,
        "max_hash_slot_num": 100,
        "max_index_num": 400,
    }
    command = [sys.executable, "-c", PROGRAM, json.dumps(options)]
    process = subprocess.Popen(
        ["sh", "-c", f'ulimit -n {LIMIT}; exec "$@"', "sh", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": python_path()},
    )
    try:
        yield FewFiles(process)
        process.communicate(timeout=30)
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()


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
