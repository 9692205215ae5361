"""The log of a process with clients and no server."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pyrmq.testing import cluster

PROGRAM = """
import sys
from pyrmq import Producer
{setup}
with Producer(name_server={address!r}, group="alone", send_timeout=0.3) as producer:
    producer.send({topic!r}, b"first", timeout=20)
    print("stored", flush=True)
    sys.stdin.readline()
    producer.produce({topic!r}, b"lost")
    producer.flush()
    print(producer.stats().failed, flush=True)
    {end}
"""

SETUP = """
import logging
logging.basicConfig(format="%(name)s %(levelname)s %(message)s")
"""


@pytest.mark.parametrize(
    ("setup", "end", "start"),
    [
        ("", "", ""),
        (SETUP, "", "pyrmq.client.producer.accumulator WARNING "),
        # The producer is not closed: it ends with the process.
        ("", "raise SystemExit", ""),
    ],
    ids=["nothing set up", "logging set up", "not closed"],
)
def test_a_message_without_a_callback_that_fails_is_logged_where_no_server_runs(
    topic: str, setup: str, end: str, start: str
) -> None:
    with cluster() as running:
        program = PROGRAM.format(address=running.name_server, topic=topic, setup=setup, end=end)
        if end:
            program = program.replace("with Producer", "producer = Producer").replace(
                ") as producer:", ")\nif True:"
            )
        with subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            assert child.stdout.readline() == "stored\n"
            running.stop_broker()
            said, logged = child.communicate("\n", timeout=30)
    assert (child.returncode, said) == (0, "1\n"), logged
    (line,) = (line for line in logged.splitlines() if "without a callback" in line)
    assert line.startswith(start + "messages without a callback were not confirmed"), logged
    # The log names the connection and the reason.
    for part in (f"topic={topic}", "count=1", "cannot connect to"):
        assert part in line, line
