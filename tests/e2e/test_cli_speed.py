"""What a command costs that asks one server, with the start of its process."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pyrmq import Admin, Producer

if TYPE_CHECKING:
    from pyrmq.testing import Cluster

LIMIT = 0.15
"""Seconds. The processor's time, not the clock's: other work on the machine does not count."""
TRIES = 3

VERBS = (
    "nameserver status",
    "broker status",
    "broker config get brokerName",
    "topic list",
    "topic describe speed",
    "group list",
    "group lag readers",
    "message query speed k",
)


@pytest.fixture(scope="module")
def filled(shared: Cluster) -> str:
    with Admin(name_server=shared.name_server) as admin:
        admin.create_topic("speed", queues=2)
    with Producer(name_server=shared.name_server) as producer:
        producer.send("speed", b"x", keys="k")
    return shared.name_server


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_takes_little_of_the_processor(filled: str, verb: str) -> None:
    took = []
    for _ in range(TRIES):
        command = [sys.executable, "-m", "pyrmq", *verb.split(), "-n", filled]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            assert process.stdout is not None
            output = process.stdout.read()
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode in {0, 1}, output
        assert "usage:" not in output
        took.append(used.ru_utime + used.ru_stime)
    assert min(took) < LIMIT, took
