"""A dashboard that runs in a test, and a client of it."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from tests.e2e.wire import V4_9_1, V5_5_0, Connection, register

from pyrmq import _core
from pyrmq.codes import RequestCode
from pyrmq.dashboard.serving import listen, server_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyrmq.dashboard.guard import Permissions

TOKEN = "T0ken-of-this-test"
FIGURES_OF_4_6_1 = {"table": {"brokerVersionDesc": "V4_6_1", "msgPutTotalTodayNow": "5"}}


class Page:
    """A client of a dashboard."""

    def __init__(self, port: int) -> None:
        self.port = port

    def send(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        """Send a request; return status, body and headers of the answer."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            data = answer.read()
            given = {name.lower(): value for name, value in answer.getheaders()}
        finally:
            connection.close()
        is_json = given.get("content-type", "").startswith("application/json")
        return answer.status, json.loads(data) if is_json else data, given

    def get(self, name: str, **query: object) -> Any:  # noqa: ANN401 - JSON
        """Ask for something that must be there."""
        status, tree, _ = self.send("GET", f"/api/{name}?{urlencode(query)}")
        assert status == 200, tree
        return tree

    def post(self, name: str, tree: object, token: str = TOKEN) -> tuple[int, Any]:
        """Send a change; return status and answer."""
        status, answer, _ = self.send(
            "POST", f"/api/{name}", json.dumps(tree).encode(), x_pyrmq_token=token
        )
        return status, answer


@contextmanager
def silent_broker(
    name_server: str, figures: Mapping[str, object] | None = None, version: int = V5_5_0
) -> Iterator[str]:
    """Register a broker that takes connections and answers nothing.

    With `figures` it answers with these when asked for them, and refuses every other request; as a
    `version` before 4.9.1 it does not answer those.
    """
    with (
        socket.create_server(("127.0.0.1", 0), backlog=200) as server,
        Connection(name_server) as own,
    ):
        register(own, "broker-silent", ["silent-1", "silent-2"], port=server.getsockname()[1])
        held: list[socket.socket] = []
        thread = threading.Thread(target=_serve, args=(server, held, figures, version))
        thread.start()
        try:
            yield "broker-silent"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            for connection in held:
                connection.close()


def _serve(
    server: socket.socket,
    held: list[socket.socket],
    figures: Mapping[str, object] | None,
    version: int,
) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        held.append(connection)
        if figures is not None:
            answers = threading.Thread(
                target=_answer, args=(connection, figures, version), daemon=True
            )
            answers.start()


def _received(connection: socket.socket) -> bytes:
    with suppress(OSError):  # closed by the end of the test
        return connection.recv(65_536)
    return b""


def _answer(connection: socket.socket, figures: Mapping[str, object], version: int) -> None:
    got = b""
    while data := _received(connection):
        got += data
        while decoded := _core.Command.decode(got):
            request, used = decoded
            got = got[used:]
            is_known = request.code == RequestCode.GET_BROKER_RUNTIME_INFO
            if not is_known and version < V4_9_1:
                continue
            body = json.dumps(figures).encode() if is_known else None
            code = 0 if is_known else 3
            answer = _core.Command(code, {}, body, opaque=request.opaque, flag=1, version=version)
            connection.sendall(answer.encode())


@contextmanager
def dashboard(name_server: str, permissions: Permissions, timeout: float = 3.0) -> Iterator[Page]:
    """Serve a cluster's dashboard in a thread."""
    is_ready = threading.Event()
    with listen("127.0.0.1", 0) as bound:
        server = server_for(
            name_server, permissions, bound, timeout=timeout, ready=lambda _: is_ready.set()
        )
        thread = threading.Thread(target=server.run, args=([bound],))
        thread.start()
        try:
            assert is_ready.wait(20)
            yield Page(bound.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive()
