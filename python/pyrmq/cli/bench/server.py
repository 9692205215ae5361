"""The cluster to measure: a running one, or one that is started for the measurement."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyrmq.errors import ServerError

if TYPE_CHECKING:
    from collections.abc import Iterator

_STOP_SECONDS = 30


@dataclass(frozen=True)
class Measured:
    """A cluster: the address of its name server, and its process if known."""

    name_server: str
    pid: int | None


@contextmanager
def of(name_server: str | None, pid: int | None) -> Iterator[Measured]:
    """Return the cluster that was named, or start `pyrmq server` on free ports.

    Raises:
        ServerError: the started server failed; its log went to standard error.
    """
    if name_server is not None:
        yield Measured(name_server, pid)
        return
    with tempfile.TemporaryDirectory(prefix="pyrmq-bench-") as home:
        command = [
            sys.executable,
            "-m",
            "pyrmq",
            "server",
            "--json",
            "--log-level",
            "error",
            "--store",
            f"{home}/store",
        ]
        command += ["--listen-port", "0", "--name-server-port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own words
            try:
                line = process.stdout.readline() if process.stdout else ""
                if not line:
                    raise ServerError(
                        "the server did not start: see above, or name a running one with -n"
                    )
                yield Measured(json.loads(line)["name_server"], process.pid)
            finally:
                process.terminate()
                process.wait(_STOP_SECONDS)
