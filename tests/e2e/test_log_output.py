"""A server's log in a file: rotation by size and day, JSON lines, files that cannot be written."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.e2e.wire import Connection, await_true, register
from tests.interop.ours import python_path

from pyrmq import ConfigError
from pyrmq._client.log_output import Output
from pyrmq.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DAY_S = 86_400


@pytest.fixture
def logger() -> Iterator[logging.Logger]:
    """Give the root logger, and take off what a test has added."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield root
    for handler in root.handlers:
        if handler not in handlers:
            handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)


@contextmanager
def name_server(*words: str) -> Iterator[str]:
    command = [sys.executable, "-m", "pyrmq", "nameserver", "--listen-port", "0", "--json", *words]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["name_server"]
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()


def test_a_server_writes_json_lines_into_its_log_file(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.log"
    kv = str(tmp_path / "kv.json")
    words = ["--log-file", str(file), "--log-json", "--log-level", "info", "--kv-config-path", kv]
    with name_server(*words) as address:
        with Connection(address.replace("0.0.0.0", "127.0.0.1")) as broker:
            register(broker, "broker-a", ["a", "b"])
        await_true(lambda: "broker removed" in file.read_text())
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert all(set(line) >= {"time", "level", "logger", "message"} for line in lines)
    came = next(line for line in lines if "broker-a" in line["message"])
    assert came["level"] == "info"
    assert came["logger"].startswith("pyrmq.nameserver")
    assert abs(time.time() - time.mktime(time.strptime(came["time"][:10], "%Y-%m-%d"))) < 2 * DAY_S


def test_a_file_rotates_by_size_and_old_ones_go(tmp_path: Path, logger: logging.Logger) -> None:
    file = tmp_path / "broker.log"
    Output(str(file), max_bytes=1000, keep=2).install("INFO")
    for number in range(100):
        logger.info("message %d of a hundred", number)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["broker.log", "broker.log.1", "broker.log.2"]
    assert all(path.stat().st_size <= 1000 for path in tmp_path.iterdir())
    assert "message 99" in file.read_text()


def test_a_file_rotates_at_the_first_record_of_a_day(
    tmp_path: Path, logger: logging.Logger
) -> None:
    file = tmp_path / "broker.log"
    file.write_text("yesterday\n")
    yesterday = time.time() - DAY_S
    os.utime(file, (yesterday, yesterday))
    Output(str(file)).install("INFO")
    logger.info("today")
    logger.info("today, too")
    assert (tmp_path / "broker.log.1").read_text() == "yesterday\n"
    assert file.read_text().count("today") == 2


def test_an_error_in_json_has_its_traceback(tmp_path: Path, logger: logging.Logger) -> None:
    file = tmp_path / "broker.log"
    Output(str(file), as_json=True).install("INFO")
    try:
        int("odd\nbytes")
    except ValueError:
        logger.exception("a task failed")
    (line,) = file.read_text().splitlines()
    assert "invalid literal for int" in json.loads(line)["error"]


def test_a_log_file_that_cannot_be_written_is_refused_before_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "missing" / "broker.log")
    with pytest.raises(ConfigError, match="No such file or directory"):
        Output(missing).install("INFO")
    assert main(["nameserver", "--listen-port", "0", "--log-file", missing]) == 2
    assert "cannot write the log file" in capsys.readouterr().err
    assert main(["nameserver", "--log-keep", "0"]) == 2
    assert "--log-keep" in capsys.readouterr().err
