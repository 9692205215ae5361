"""Our name server and broker as processes, handled like the real ones.

They start from the command line with Apache's property files, as a person would start them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.interop.jvm import (
    LOG_TAIL_LINES,
    StartError,
    free_broker_port,
    free_port,
    temporary_directory,
)
from tests.interop.rocketmq import SMALL_STORE, write_properties
from tests.secret_search import searched

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def python_path() -> str:
    """Return the path of the tests' ``pyrmq``, so that the servers run the same one."""
    found = find_spec("pyrmq")
    if found is None or found.origin is None:
        raise StartError("pyrmq cannot be imported; `make dev` builds it")
    return str(Path(found.origin).parent.parent)


class OurProcess:
    """One ``pyrmq`` server process.

    Args:
        name: ``nameserver`` or ``broker``, the command of ``pyrmq``.
        arguments: its options.
    """

    def __init__(self, name: str) -> None:
        """Create its directory; nothing runs yet."""
        self.name = name
        self.work_dir = searched(temporary_directory(f"our-{name}"))
        self.log = self.work_dir / f"{name}.log"
        self._arguments: Sequence[str] = ()
        self._process: subprocess.Popen[str] | None = None
        self.ready: dict[str, object] = {}

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id."""
        if self._process is None:
            raise StartError(f"our {self.name} was not started")
        return self._process.pid

    def start(self, timeout: float = 60.0) -> Self:
        """Start it and wait for the line that reports that it serves.

        Raises:
            StartError: it ended or was silent for ``timeout`` seconds; the text has its log.
        """
        command = [sys.executable, "-m", "pyrmq", self.name, "--json", *self._arguments]
        environment = {key: text for key, text in os.environ.items() if key != "NAMESRV_ADDR"}
        environment["PYTHONPATH"] = python_path()
        with self.log.open("a") as log:
            process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=self.work_dir,
                env=environment,
            )
        self._process = process
        too_late = threading.Timer(timeout, process.kill)
        too_late.start()
        assert process.stdout is not None
        line = process.stdout.readline()
        too_late.cancel()
        if not line:
            self.kill()
            raise StartError(f"our {self.name} did not start:\n{self.log_tail()}")
        self.ready = json.loads(line)
        return self

    def stop(self, timeout: float = 30.0) -> int:
        """Stop it cleanly with SIGTERM and return its exit code."""
        return self._end(signal.SIGTERM, timeout)

    def kill(self, timeout: float = 30.0) -> int:
        """Kill it with SIGKILL."""
        return self._end(signal.SIGKILL, timeout)

    def _end(self, number: signal.Signals, timeout: float) -> int:
        process = self._process
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(number)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait(timeout)
        if process.stdout is not None:
            process.stdout.close()
        self._process = None
        return code

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """Return the last lines of its log."""
        if not self.log.exists():
            return ""
        text = "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        return f"--- our {self.name}\n{text}"

    def __enter__(self) -> Self:
        """Start it unless it runs already."""
        return self if self.alive else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        """Stop it; if the block failed, show the end of its log."""
        if error is not None:
            error.add_note(self.log_tail())
        self.stop()


class OurNameServer(OurProcess):
    """Our name server on a free port of 127.0.0.1."""

    def __init__(
        self, *, port: int | None = None, properties: Mapping[str, object] | None = None
    ) -> None:
        """Write its property file."""
        super().__init__("nameserver")
        self.port = port or free_port()
        keys = {
            "listenPort": self.port,
            "kvConfigPath": self.work_dir / "kvConfig.json",
            **(properties or {}),
        }
        config = write_properties(self.work_dir / "namesrv.conf", keys)
        self._arguments = ["-c", str(config)]

    @property
    def address(self) -> str:
        """``host:port`` for clients and brokers."""
        return f"127.0.0.1:{self.port}"


class OurBroker(OurProcess):
    """Our broker on free ports of 127.0.0.1, with the arguments of ``JavaBroker``."""

    def __init__(
        self,
        namesrv: str,
        *,
        store_dir: Path | None = None,
        name: str = "broker-a",
        cluster: str = "DefaultCluster",
        port: int | None = None,
        properties: Mapping[str, object] | None = None,
    ) -> None:
        """Write its ``broker.conf``."""
        super().__init__("broker")
        self.port = port or free_broker_port()
        self.broker_name = name
        self.cluster = cluster
        self.store_dir = store_dir or self.work_dir / "store"
        config = write_properties(
            self.work_dir / "broker.conf",
            {
                "brokerClusterName": cluster,
                "brokerName": name,
                "brokerId": 0,
                "brokerIP1": "127.0.0.1",
                "listenPort": self.port,
                "namesrvAddr": namesrv,
                "storePathRootDir": self.store_dir,
                "storePathCommitLog": self.store_dir / "commitlog",
                "autoCreateTopicEnable": "true",
                **SMALL_STORE,
                **(properties or {}),
            },
        )
        self._arguments = ["-c", str(config)]

    @property
    def address(self) -> str:
        """``host:port`` for clients."""
        return f"127.0.0.1:{self.port}"
