"""Runs a server of a cluster in its own process, which can be killed."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import pyrmq
from pyrmq import errors
from pyrmq.errors import ConfigError, RmqError, ServerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyrmq.config import BrokerOptions, NameServerOptions

    MakeOptions = Callable[[int], BrokerOptions | NameServerOptions]

_ANSWER_SECONDS = 30.0
_END_SECONDS = 10.0
_LOG_LINES = 20
_PIECE = 65536


class InOwnProcess:
    """Runs a server as a child process (`pyrmq.testing.child`).

    Args:
        name: of the server, for error texts.
        kind: `broker` or `nameserver`.
        options: makes its options for a port.
        log: file for its log.
        faults: whether its disk can have faults.
        temporary: directory that it removes if this process dies without doing so.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        options: MakeOptions,
        log: Path,
        *,
        faults: bool,
        temporary: Path | None,
    ) -> None:
        self._name = name
        self._kind = kind
        self._options = options
        self._log = log
        self._faults = faults
        self._temporary = temporary
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._disk: dict[str, tuple[int, ...]] = {}
        # Guards the pipes: one command at a time.
        self._lock = threading.Lock()

    @property
    def running(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The process id; None if it is not running."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self, port: int) -> str:
        """Start the process, and wait until the server serves."""
        self._close()
        first = {
            "kind": self._kind,
            "options": self._options(port).to_properties(),
            "faults": self._faults,
            "disk": self._disk,
            "parent": os.getpid(),
            "temporary": None if self._temporary is None else str(self._temporary),
        }
        home = str(Path(pyrmq.__file__).parent.parent)
        paths = [home, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "pyrmq.testing.child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                # A Ctrl-C at the terminal is only for the test.
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            )
        self._unread = b""
        try:
            return str(self._request(first))
        except BaseException:
            self.kill()
            raise

    def stop(self, timeout: float) -> None:
        """Stop the server cleanly, and wait for the end of its process."""
        try:
            self._request({"do": "stop", "timeout": timeout}, timeout + _ANSWER_SECONDS)
            if self._process is not None:
                self._process.wait(_END_SECONDS)
        finally:
            self.kill()

    def kill(self) -> None:
        """End the process with SIGKILL."""
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
        self._close()

    def health(self) -> dict[str, Any]:
        """The state of the server."""
        health: dict[str, Any] = self._request({"do": "health"})
        return health

    def broker_names(self) -> set[str]:
        """The brokers that a name server knows."""
        return set(self._request({"do": "broker_names"}))

    def change_disk(self, verb: str, *arguments: int) -> None:
        """Change the faults of the disk, also for later processes."""
        if verb == "heal":
            self._disk = {}
        else:
            self._disk[verb] = arguments
        if self.running:
            self._request({"do": "disk", "verb": verb, "arguments": arguments})

    def _request(self, order: dict[str, Any], timeout: float = _ANSWER_SECONDS) -> Any:  # noqa: ANN401 - JSON
        with self._lock:
            process = self._process
            if process is None or process.stdin is None:
                raise ServerError(f"{self._name} does not run: call its start() first")
            try:
                process.stdin.write(json.dumps(order).encode() + b"\n")
                process.stdin.flush()
                answer = json.loads(self._line(process, timeout))
            except (OSError, EOFError) as error:
                code = process.wait(_END_SECONDS)
                raise ServerError(
                    f"the process of {self._name} has ended with code {code}; its log, "
                    f"{self._log}, ends with:\n{self._log_tail()}"
                ) from error
        if "error" in answer:
            kind = getattr(errors, answer["error"])
            raise (kind if issubclass(kind, ServerError | ConfigError) else RmqError)(
                answer["text"]
            )
        return answer["value"]

    def _line(self, process: subprocess.Popen[bytes], timeout: float) -> bytes:
        assert process.stdout is not None
        until = monotonic() + timeout
        while b"\n" not in self._unread:
            if not select.select([process.stdout], [], [], max(0.0, until - monotonic()))[0]:
                raise ServerError(
                    f"the process of {self._name}, {process.pid}, does not answer within "
                    f"{timeout:g} s: is it stopped by a signal? Its log is {self._log}"
                )
            data = os.read(process.stdout.fileno(), _PIECE)
            if not data:
                raise EOFError
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _log_tail(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-_LOG_LINES:])

    def _close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    # It died before it read a command.
                    continue


class DiskOfProcess:
    """The disk of a broker in a separate process, as `pyrmq.testing.faults` uses it."""

    def __init__(self, process: InOwnProcess) -> None:
        self._process = process

    def full(self, free_bytes: int) -> None:
        """Be full after `free_bytes` more."""
        self._process.change_disk("full", free_bytes)

    def slow(self, micros: int) -> None:
        """Make each write and fsync slower by `micros` microseconds."""
        self._process.change_disk("slow", micros)

    def fail_writes(self) -> None:
        """Let writes fail."""
        self._process.change_disk("fail_writes")

    def fail_syncs(self) -> None:
        """Let every fsync fail."""
        self._process.change_disk("fail_syncs")

    def fail_reads(self) -> None:
        """Let reads fail."""
        self._process.change_disk("fail_reads")

    def heal(self) -> None:
        """End all faults."""
        self._process.change_disk("heal")
