"""Rust's events in Python's logging: levels, names, and no events before a server runs.

Each program runs in its own process, because the ring and its thread belong to the process.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAD = """
import logging, sys, threading
from pyrmq import _core
from pyrmq._client import log
logging.basicConfig(stream=sys.stdout, level=10, format="%(name)s %(levelname)s %(message)s")
def threads():
    return [thread.name for thread in threading.enumerate() if thread.name == "pyrmq-log"]
"""


def output_of(program: str, head: str = HEAD) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", head + program],
        capture_output=True,
        text=True,
        check=True,
        timeout=20,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_events_reach_their_logger_with_their_level() -> None:
    program = """
log.acquire()
_core.log_put(30, "pyrmq.broker.register", "no answer address=127.0.0.1:1")
_core.log_put(10, "pyrmq.store", "disk 90%s full")
log.release()
"""
    assert output_of(program) == [
        "pyrmq.broker.register WARNING no answer address=127.0.0.1:1",
        "pyrmq.store DEBUG disk 90%s full",
    ]


@pytest.mark.parametrize("kind", ["ValueError", "SystemExit"])
def test_a_handler_that_raises_ends_nothing(kind: str) -> None:
    program = f"""
class Broken(logging.Handler):
    def emit(self, record):
        if "bad" in record.getMessage():
            raise {kind}("a handler that fails")
logging.raiseExceptions = False
logging.getLogger("pyrmq").addHandler(Broken())
log.acquire()
for text in ("bad", "good"):
    _core.log_put(30, "pyrmq.store", text)
log.release()
log.acquire()
_core.log_put(30, "pyrmq.store", "of a second client")
log.release()
"""
    assert output_of(program) == [
        "pyrmq.store WARNING good",
        "pyrmq.store WARNING of a second client",
    ]


def test_the_thread_ends_with_its_last_user() -> None:
    program = """
print(threads())
log.acquire(); log.acquire(); log.release()
print(threads())
log.release()
print(threads())
log.acquire()
print(threads())
"""
    assert output_of(program) == ["[]", "['pyrmq-log']", "[]", "['pyrmq-log']"]


def test_a_flood_is_cut_and_counted() -> None:
    program = """
for number in range(10_000):
    _core.log_put(20, "pyrmq.store", str(number))
log.acquire(); log.release()
"""
    said, *kept = output_of(program)
    assert kept == [f"pyrmq.store INFO {number}" for number in range(len(kept))]
    assert 1000 < len(kept) < 10_000
    assert said == (
        f"pyrmq.log WARNING {10_000 - len(kept)} events were dropped: they arrived faster than "
        "they were written"
    )


def test_the_level_of_the_logger_decides_what_the_core_gives() -> None:
    program = """
from pyrmq import NameServer
logging.getLogger("pyrmq").setLevel(logging.ERROR)
NameServer(listen_port=0, bind_address="127.0.0.1").start().stop()
logging.getLogger("pyrmq").setLevel(logging.INFO)
print("now")
NameServer(listen_port=0, bind_address="127.0.0.1").start().stop()
"""
    now, *lines = output_of(program)
    assert now == "now"
    assert lines[0].startswith("pyrmq.nameserver.server INFO the name server is ready address=127.")


def test_the_thread_ends_with_the_last_client_and_with_one_that_nobody_closed() -> None:
    program = """
import asyncio, gc
from pyrmq import Producer, PullConsumer, aio
options = {"name_server": "127.0.0.1:1", "group": "g"}
for make in (Producer, PullConsumer):
    with make(**options):
        print(threads())
    print(threads())
async def main():
    for make in (aio.Producer, aio.PullConsumer):
        async with make(**options):
            print(threads())
        print(threads())
asyncio.run(main())
forgotten = Producer(**options)
print(threads())
del forgotten
gc.collect()
print(threads())
"""
    lines = [line for line in output_of(program) if line.startswith("[")]
    assert lines == ["['pyrmq-log']", "[]"] * 5


def test_threads_that_make_and_end_clients_at_once_leave_the_log_as_they_found_it() -> None:
    program = """
def work(number):
    for turn in range(300):
        log.acquire()
        _core.log_put(30, "pyrmq.t", f"{number} {turn}")
        log.release()
workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for worker in workers: worker.start()
for worker in workers: worker.join()
print(threads())
"""
    *lines, left = output_of(program)
    assert left == "[]"
    assert len(set(lines)) == len(lines) == 1200


def test_importing_starts_no_thread_and_touches_no_logger() -> None:
    program = (
        "import logging, threading, pyrmq, pyrmq._client.log\n"
        "print(threading.active_count(), logging.root.handlers)"
    )
    assert output_of(program, head="") == ["1 []"]
