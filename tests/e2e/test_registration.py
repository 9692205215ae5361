"""A broker's registration at its name servers."""

from __future__ import annotations

import socket
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING

from pyrmq import Broker, _core
from pyrmq.codes import RequestCode

if TYPE_CHECKING:
    from pathlib import Path


def test_no_address_for_slaves_is_told_while_nobody_listens_there(tmp_path: Path) -> None:
    told: list[dict[str, str]] = []

    def listen(server: socket.socket) -> None:
        """Read one request; the end of the connection is the answer."""
        connection, _ = server.accept()
        with connection:
            buffer = b""
            while (decoded := _core.Command.decode(buffer)) is None:
                buffer += connection.recv(65_536)
            command, _ = decoded
            assert command.code == RequestCode.REGISTER_BROKER
            told.append(dict(command.fields))

    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        thread = Thread(target=listen, args=(server,))
        thread.start()
        with (
            suppress(OSError),
            Broker(
                listen_port=0,
                bind_address="127.0.0.1",
                broker_ip1="127.0.0.1",
                namesrv_addr=f"{host}:{port}",
                store_path_root_dir=str(tmp_path),
            ),
        ):
            thread.join(timeout=10)
    (fields,) = told
    assert fields["brokerAddr"].startswith("127.0.0.1:")
    assert "haServerAddr" not in fields
