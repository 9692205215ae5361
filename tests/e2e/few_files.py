"""A broker in a process that may open few files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.interop.ours import python_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOST = "127.0.0.1"
LIMIT = 256
ULIMIT = f"ulimit -n {LIMIT} && ulimit -S -n {LIMIT // 2}"
"""Sets the hard limit, and a lower soft one, which a server raises when it starts."""
# Serves, prints its address, and its health for each line of its input.
PROGRAM = """
import json, sys
from pyrmq import Broker
options = json.loads(sys.argv[1])
with Broker(**options) as broker:
    print(broker.address, flush=True)
    for line in sys.stdin:
        print(json.dumps(broker.health()), flush=True)
"""


class FewFiles:
    """A broker in a process that may open 256 files."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        """Read its address."""
        self._process = process
        self.host, port = self._line().rsplit(":", 1)
        self.port = int(port)

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the broker has ended"
        return line.strip()

    def health(self) -> dict[str, Any]:
        """Request its health."""
        assert self._process.stdin is not None
        self._process.stdin.write("health\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._line())
        return answer


@contextmanager
def few_files(name_server: str, store: Path) -> Iterator[FewFiles]:
    options = {
        "listen_port": 0,
        "bind_address": HOST,
        "broker_ip1": HOST,
        "namesrv_addr": name_server,
        "store_path_root_dir": str(store),
        "mapped_file_size_commit_log": 1 << 16,
        "mapped_file_size_consume_queue": 2000,
        "max_hash_slot_num": 100,
        "max_index_num": 400,
    }
    command = [sys.executable, "-c", PROGRAM, json.dumps(options)]
    process = subprocess.Popen(
        ["sh", "-c", f'{ULIMIT}; exec "$@"', "sh", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": python_path()},
    )
    try:
        yield FewFiles(process)
        process.communicate(timeout=30)
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()
