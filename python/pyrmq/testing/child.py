"""The program of a server in its own process: `python -m pyrmq.testing.child`.

It reads commands as lines of JSON from standard input and answers each with a line on standard
output. The first command names the server and its options. It ends with its parent, however that
ends: at the end of the input, or, if another process holds the input open, when its parent changes.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
from time import sleep
from typing import Any

from pyrmq._client import log
from pyrmq.errors import RmqError

_CHECK_SECONDS = 0.25


class _Served:
    """The server and its commands."""

    def __init__(self, first: dict[str, Any]) -> None:
        self.disk: Any = None
        self.server: Any
        if first["kind"] == "broker":
            from pyrmq.config import BrokerOptions

            options = BrokerOptions.from_properties(first["options"])
            if first["faults"]:
                from pyrmq import _core
                from pyrmq.testing.faulty_broker import FaultyBroker

                self.disk = _core.Disk()
                self.server = FaultyBroker(self.disk, options)
            else:
                from pyrmq.broker.server import Broker

                self.server = Broker(options)
        else:
            from pyrmq.config import NameServerOptions
            from pyrmq.nameserver.server import NameServer

            self.server = NameServer(NameServerOptions.from_properties(first["options"]))
        for verb, arguments in first["disk"].items():
            getattr(self.disk, verb)(*arguments)
        self.server.start()

    def obey(self, order: dict[str, Any]) -> object:
        """Execute one command."""
        match order["do"]:
            case "health":
                return self.server.health()
            case "broker_names":
                return [broker.name for broker in self.server.brokers()]
            case "disk":
                getattr(self.disk, order["verb"])(*order["arguments"])
            case "stop":
                self.server.stop(order["timeout"])
            case other:
                raise ValueError(other)
        return None


def _answer(words: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def _end_with(parent: int, folder: str | None) -> None:
    while os.getppid() == parent:
        sleep(_CHECK_SECONDS)
    _leave(folder)


def _leave(folder: str | None) -> None:
    """End as after `kill -9`, without waiting for anything."""
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def main() -> None:
    """Run until the command to stop, or until the parent has ended."""
    # Ctrl-C is for the test, which then stops this server.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    log.use_standard_error("warning")
    line = sys.stdin.readline()
    if not line:
        return
    first = json.loads(line)
    folder = first["temporary"]
    watch = threading.Thread(target=_end_with, args=(first["parent"], folder), daemon=True)
    watch.start()
    try:
        served = _Served(first)
    except RmqError as error:
        _answer({"error": type(error).__name__, "text": str(error)})
        return
    _answer({"value": served.server.address})
    for line in sys.stdin:
        order = json.loads(line)
        try:
            _answer({"value": served.obey(order)})
        except RmqError as error:
            _answer({"error": type(error).__name__, "text": str(error)})
        if order["do"] == "stop":
            return
    _leave(folder)


if __name__ == "__main__":
    main()
