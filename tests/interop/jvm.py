"""Starts, watches and stops a Java process; shared by the servers and the client driver."""

from __future__ import annotations

import atexit
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from tests.interop import artifacts

if TYPE_CHECKING:
    from collections.abc import Sequence

JAVA_17 = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)
"""Packages that RocketMQ needs opened on Java 17."""

QUICK_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""Flags that make a JVM start fast and small; omit them to measure speed."""

EMPTY_LOGBACK = "<configuration/>\n"
LOGBACK_FILES = (
    *("logback_namesrv.xml", "logback_broker.xml", "logback_tools.xml"),
    *("rmq.namesrv.logback.xml", "rmq.broker.logback.xml", "rmq.tools.logback.xml"),
)
LOG_TAIL_LINES = 40
PORTS = (12_000, 32_000)
"""Below 32,768, where the ports of connections begin on Linux."""


class StartError(RuntimeError):
    """A Java process did not start; the text has the end of its log."""


def temporary_directory(name: str) -> Path:
    """Return a new directory that lasts as long as this process, so that logs can be read."""
    path = Path(tempfile.mkdtemp(prefix=f"pyrmq-{name}-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def free_port() -> int:
    """Return a free port.

    It lies outside the range from which systems give ports to connections: one from there may be
    taken by somebody's connection before the server opens it, or while the server restarts.
    """
    while not is_free(port := random.randrange(*PORTS)):
        pass
    return port


def is_free(port: int) -> bool:
    """Return whether the port is free on every address."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


def free_broker_port() -> int:
    """Return a port that is free together with the one two below, a Java broker's VIP channel."""
    while not is_free((port := free_port()) - 2):
        pass
    return port


class JavaProcess:
    """One JVM with its own home directory, a log of its output and a clean stop.

    Args:
        name: what the process is called in messages and log files.
        version: the RocketMQ version whose jars it runs on.
        main: the main class.
        arguments: arguments of the program.
        jvm: more JVM flags, such as ``-Xmx`` or ``-D``.
        work_dir: its ``user.home`` and ``rocketmq.home.dir``; a new temporary one without it.
        ready: the text in its output that says that it serves.
        heap_mb: the largest heap, in MiB.
        quick: start fast and small; False for measurements.
    """

    def __init__(
        self,
        name: str,
        version: str,
        main: str,
        *,
        arguments: Sequence[str] = (),
        jvm: Sequence[str] = (),
        work_dir: Path | None = None,
        ready: str = "boot success",
        heap_mb: int = 256,
        quick: bool = True,
    ) -> None:
        """Keep what to start; nothing runs yet."""
        self.name = name
        self.version = version
        self.work_dir = work_dir or temporary_directory(name)
        self.log = self.work_dir / f"{name}.log"
        self._main = main
        self._arguments = list(arguments)
        self._jvm = [
            *(QUICK_START if quick else ()),
            f"-Xmx{heap_mb}m",
            "-XX:MaxDirectMemorySize=512m",
            *jvm,
        ]
        self._ready_text = ready
        self._ready = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def command(self) -> list[str]:
        """Return the whole command line."""
        conf = self.work_dir / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        for file in LOGBACK_FILES:
            (conf / file).write_text(EMPTY_LOGBACK)
        return [
            *("java", *JAVA_17, *self._jvm),
            f"-Drocketmq.home.dir={self.work_dir}",
            f"-Duser.home={self.work_dir}",
            f"-Dlogback.configurationFile={conf / LOGBACK_FILES[0]}",
            f"-Drmq.logback.configurationFile={conf / LOGBACK_FILES[0]}",
            *("-cp", artifacts.class_path(self.version), self._main, *self._arguments),
        ]

    @property
    def pid(self) -> int:
        """The process id of the running JVM."""
        return self._running().pid

    @property
    def alive(self) -> bool:
        """Whether the JVM runs."""
        return self._process is not None and self._process.poll() is None

    def start(self, timeout: float = 120.0) -> Self:
        """Start it and wait until it reports that it is ready.

        Raises:
            StartError: it ended or was silent for ``timeout`` seconds; the text has its log.
        """
        artifacts.require_java()
        environment = {
            key: value
            for key, value in os.environ.items()
            if key not in ("NAMESRV_ADDR", "ROCKETMQ_HOME")
        }
        self._ready.clear()
        self._process = subprocess.Popen(
            self.command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.work_dir,
            env=environment,
        )
        self._reader = threading.Thread(
            target=self._copy_output, name=f"{self.name}-log", daemon=True
        )
        self._reader.start()
        if not self._ready.wait(timeout) or not self.alive:
            self.kill()
            raise StartError(f"{self.name} ({self.version}) did not start:\n{self.log_tail()}")
        return self

    def stop(self, timeout: float = 30.0) -> int:
        """Stop it cleanly (SIGTERM: flush, checkpoint, no abort file) and return the exit code."""
        return self._end(signal.SIGTERM, timeout)

    def kill(self, timeout: float = 30.0) -> int:
        """Kill it with SIGKILL."""
        return self._end(signal.SIGKILL, timeout)

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> str:
        """Return the last lines that it printed and of its own log files."""
        parts = []
        own = sorted(self.work_dir.glob("logs/rocketmqlogs/*.log"))
        for path in [self.log, *own]:
            if path.exists() and path.stat().st_size:
                text = path.read_text(errors="replace").splitlines()[-lines:]
                parts.append(f"--- {path.name}\n" + "\n".join(text))
        return "\n".join(parts)

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise StartError(f"{self.name} was not started")
        return self._process

    def _copy_output(self) -> None:
        output = self._running().stdout
        assert output is not None
        with self.log.open("a") as log:
            for line in output:
                log.write(line)
                log.flush()
                if self._ready_text in line:
                    self._ready.set()
        self._ready.set()

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
        if self._reader is not None:
            self._reader.join(timeout)
        for stream in (process.stdin, process.stdout):
            close_quietly(stream)
        self._process = None
        return code

    def __enter__(self) -> Self:
        """Start it unless it runs already."""
        return self if self.alive else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        """Stop it; when the block failed, show the end of its log."""
        if error is not None:
            error.add_note(f"{self.name} ({self.version}) said:\n{self.log_tail()}")
        self.stop()


def close_quietly(stream: IO[str] | None) -> None:
    """Close a pipe of a process that may be gone."""
    if stream is None:
        return
    try:
        stream.close()
    except OSError:
        return
