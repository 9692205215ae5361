"""What a command that asks one server imports, which decides how long it takes.

Such a command needs some 100 ms of the processor here, nearly all of it for the interpreter's start
and for imports. A bound in seconds would test the machine that runs the tests: one that is half as
fast fails it. So these tests bound the imports: their number, and modules that are slow to import
or that only other commands need. `make bench ROW=verbs` measures the time.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from pyrmq import Admin, Producer, PullConsumer

if TYPE_CHECKING:
    from pyrmq.testing import Cluster

MOST = 190
"""Modules of one command, with the interpreter's own. Today: 129 to 162."""

ELSEWHERE = {
    *("asyncio", "ctypes", "decimal", "difflib", "email", "hashlib", "http", "importlib.metadata"),
    *("multiprocessing", "random", "sqlite3", "ssl", "subprocess", "tarfile", "tempfile"),
    *("unittest", "urllib.request", "xml", "zipfile"),
    *("pyrmq.aio", "pyrmq.arrow", "pyrmq.broker", "pyrmq.consumer", "pyrmq.dashboard"),
    *("pyrmq.doctor", "pyrmq.nameserver", "pyrmq.otel", "pyrmq.pipeline", "pyrmq.producer"),
    *("pyrmq.routing", "pyrmq.server.metrics", "pyrmq.spark", "pyrmq.testing"),
    "pyrmq.transaction",
}
"""Modules that these commands do not need."""

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
    with PullConsumer(name_server=shared.name_server, group="readers", start="first") as consumer:
        consumer.subscribe("speed")
        assert consumer.poll(timeout=20)
        consumer.commit()
    return shared.name_server


def run(*words: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run an interpreter; return how it ended and what it imported."""
    command = [sys.executable, "-X", "importtime", *words]
    # Against a command that hangs: none takes a tenth of this time.
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=25)
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    # The first line is the table's head.
    return done, [line.rpartition("|")[2].strip() for line in lines[1:]]


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_imports_only_what_it_needs(filled: str, verb: str) -> None:
    done, modules = run("-m", "pyrmq", *verb.split(), "-n", filled)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert len(modules) <= MOST, modules
    assert ELSEWHERE.isdisjoint(modules)
    # Packages of other projects, but for those that this environment gives to every program.
    known = sys.stdlib_module_names | {"pyrmq", "pyrmq_rocketmq"} | {*run("-c", "")[1]}
    # `copy` looks for a package of Jython's, which is not there.
    known |= {"org"}
    assert {module.partition(".")[0] for module in modules} <= known


def test_the_modules_that_are_not_needed_have_these_names() -> None:
    assert [module for module in sorted(ELSEWHERE) if find_spec(module) is None] == []
