"""Name server and broker as processes, on free loopback ports."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

START_S = 30.0


def free_port() -> int:
    """Return a free port: the broker keeps its port across restarts."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


class Process:
    """A `pyrmq` server process that can be started, killed, started again and stopped."""

    def __init__(self, verb: str, arguments: list[str], log: Path) -> None:
        self.verb = verb
        self.arguments = arguments
        self.log = log
        self.address = ""
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> float:
        """Start the server, wait until it serves, and return the seconds that this took."""
        begun = time.monotonic()
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pyrmq", self.verb, "--json", *self.arguments],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={key: text for key, text in os.environ.items() if key != "NAMESRV_ADDR"},
            )
        output = self._process.stdout
        assert output is not None
        ready, _, _ = select.select([output], [], [], START_S)
        line = output.readline() if ready else ""
        if not line:
            self.end(signal.SIGKILL)
            raise SystemExit(f"the {self.verb} did not start, see {self.log}")
        said = json.loads(line)
        self.address = said["broker" if self.verb == "broker" else "name_server"]
        return time.monotonic() - begun

    def kill(self) -> None:
        """Kill the server with -9, without a flush."""
        self.end(signal.SIGKILL)

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Stop the server if it runs."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def name_server(logs: Path) -> Process:
    """Return the name server."""
    arguments = ["--listen-port", "0", "--bind-address", "127.0.0.1"]
    return Process("nameserver", arguments, logs / "nameserver.log")


def broker(names: str, store: Path, logs: Path) -> Process:
    """Return the broker."""
    arguments = ["-n", names, "--listen-port", str(free_port()), "--broker-ip1", "127.0.0.1"]
    arguments += ["--bind-address", "127.0.0.1", "--store", str(store)]
    return Process("broker", arguments, logs / "broker.log")
