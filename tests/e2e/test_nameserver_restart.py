"""A name server that stops and comes back, with our broker on it."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Self

from tests.e2e.wire import await_true
from tests.interop.jvm import free_port

from pyrmq import NameServer
from pyrmq.broker import Broker

if TYPE_CHECKING:
    from pathlib import Path

HOST = "127.0.0.1"


def name_server(home: Path, port: int) -> NameServer:
    return NameServer(listen_port=port, bind_address=HOST, kv_config_path=home / f"kv-{port}.json")


def broker(home: Path, names: NameServer) -> Broker:
    return Broker(
        listen_port=0,
        bind_address=HOST,
        broker_ip1=HOST,
        broker_name=home.name,
        namesrv_addr=names.address,
        store_path_root_dir=home / "store",
        mapped_file_size_commit_log=1 << 20,
    )


def knows_broker(server: NameServer) -> bool:
    return any(seen.broker_id == 0 for seen in server.brokers())


def test_a_name_server_that_comes_back_is_whole_again(tmp_path: Path) -> None:
    names = name_server(tmp_path, free_port())
    with names, broker(tmp_path, names):
        await_true(lambda: knows_broker(names))
        before = names.topics()
        for _ in range(2):
            names.stop(0)
            names.start()
            await_true(lambda: knows_broker(names))
            assert names.topics() == before


class LostTime:
    """Measures how late a thread wakes up: the delay that a busy machine causes."""

    STEP = 0.005

    def __init__(self) -> None:
        self.seconds = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while True:
            began = time.monotonic()
            if self._stop.wait(self.STEP):
                return
            self.seconds += max(0.0, time.monotonic() - began - self.STEP)

    def __enter__(self) -> Self:
        """Begin to measure."""
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """End it."""
        self._stop.set()
        self._thread.join()


def test_a_name_server_started_anew_knows_our_brokers_within_a_second(tmp_path: Path) -> None:
    names = name_server(tmp_path, free_port())
    with names, broker(tmp_path / "a", names), broker(tmp_path / "b", names):
        for round_ in range(4):
            await_true(lambda: len(names.brokers()) == 2)
            before = names.topics()
            # Stopped for different times, so that the brokers' attempts fall at any moment.
            names.stop(0)
            threading.Event().wait(0.15 * round_)
            names.start()
            with LostTime() as lost:
                began = time.monotonic()
                await_true(lambda: len(names.brokers()) == 2)
                took = time.monotonic() - began
            assert took - lost.seconds <= 1.0, (round_, took, lost.seconds)
            assert names.topics() == before
