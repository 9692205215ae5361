"""A name server that goes and comes back, with our broker on it."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from tests.e2e.wire import await_true

from pyrmq import NameServer
from pyrmq.broker import Broker

if TYPE_CHECKING:
    from pathlib import Path

HOST = "127.0.0.1"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def name_server(home: Path, port: int) -> NameServer:
    return NameServer(listen_port=port, bind_address=HOST, kv_config_path=home / f"kv-{port}.json")


def broker(home: Path, names: NameServer) -> Broker:
    return Broker(
        listen_port=0,
        bind_address=HOST,
        broker_ip1=HOST,
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
