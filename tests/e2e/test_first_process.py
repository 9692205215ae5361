"""A broker as process 1, as in a container: no other process reaps or signals for it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pyrmq import Producer

SPACE = ("unshare", "--fork", "--pid", "--mount-proc", "--kill-child")


def test_sigterm_stops_process_1_cleanly(tmp_path: Path) -> None:
    if (
        shutil.which("unshare") is None
        or subprocess.run([*SPACE, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no name space for processes can be made here")
    command = [*SPACE, sys.executable, "-m", "pyrmq", "server", "--json", "--store", str(tmp_path)]
    command += ["--listen-port", "0", "--name-server-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as outer:
        assert outer.stdout is not None
        ready = json.loads(outer.stdout.readline())
        with Producer(name_server=ready["name_server"]) as producer:
            producer.send("orders", b"x")
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        (broker,) = map(int, children)
        status = Path(f"/proc/{broker}/status").read_text()
        (seen,) = [line for line in status.splitlines() if line.startswith("NSpid:")]
        assert seen.split()[-1] == "1"
        os.kill(broker, signal.SIGTERM)
        assert outer.wait(20) == 0
    # A store that was closed cleanly has no `abort`.
    assert not (tmp_path / "abort").exists()
