"""The examples run as written, each as a program with its own servers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

SAID = {
    "producer": """
        SEND_OK: queue \\d, offset 0
        1000 messages in \\d+ batches
        1 queue, in order: True
        refused before it left: .*body.*
        not stored: .*queue.*
    """,
    "produce_callbacks": """
        20000 stored in 4 queues, 0 failed
        [\\d,]+/s, \\d+ messages in a batch, \\d+ retries
    """,
    "asyncio_producer": """
        500 of 500 orders taken
        \\d queues of `audit` in use
        the kitchen reads [1-9]\\d* at once
    """,
    "transaction": """
        10 euros: COMMIT, confirmed: True
        20 euros: ROLLBACK, confirmed: True
        30 euros: UNKNOWN, confirmed: False
        booked: [13]0 euros
        booked: [13]0 euros
    """,
    "push_consumer": """
        pyrmq\\..*dead letter.*: its body does not fit the listener's annotation: .*
        cooked: 1 soup, 2 tea
        dead letters: 1
    """,
    "pull_consumer": """
        1000 sales booked, 1000 not committed
        0 not committed
        read again: True
    """,
    "simple_consumer": """
        20 acknowledged, 20 different
    """,
    "request_reply": r"""
        tea: 2.80
        coffee, three times: {'3.10'}
        milk: no reply came in 300 ms to message \w{32} for topic `prices`; .* may have been read
    """,
    "timers_recall": """
        no pizza
        (take the tea out|serve|wash up)
        (take the tea out|serve|wash up)
        (take the tea out|serve|wash up)
        too late: .+
    """,
    "worker_processes": """
        20 tasks done, in this process: False
    """,
}
"""The output of each example, line by line."""


@pytest.fixture(scope="module")
def running() -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Start all examples together: they mostly wait."""
    found = find_spec("pyrmq")
    assert found is not None
    assert found.origin is not None
    environment = {key: text for key, text in os.environ.items() if key != "NAMESRV_ADDR"}
    environment["PYTHONPATH"] = str(Path(found.origin).parent.parent)
    programs = {
        name: subprocess.Popen(
            [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for name in SAID
    }
    yield programs
    for program in programs.values():
        program.kill()
        program.communicate()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", SAID)
def test_an_example_runs_and_says_what_it_does(
    running: dict[str, subprocess.Popen[str]], name: str
) -> None:
    program = running[name]
    said, wrong = program.communicate(timeout=100)
    assert program.returncode == 0, wrong
    assert not wrong
    expected = [line.strip() for line in SAID[name].strip().splitlines()]
    for line, pattern in zip(said.splitlines(), expected, strict=True):
        assert re.fullmatch(pattern, line), f"{line!r} is not {pattern!r}"


def test_every_example_of_a_client_is_run_and_short() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py") if not path.stem.startswith("spark")}
    assert names == set(SAID)
    for name in names:
        assert len((EXAMPLES / f"{name}.py").read_text("utf-8").splitlines()) <= 60
