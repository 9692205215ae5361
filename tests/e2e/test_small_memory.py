"""A broker whose control group has 256 MB of memory, as in a small container."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.e2e.hostile import MIB, connect, push_halves
from tests.interop.ours import OurBroker, OurNameServer

from pyrmq import Producer, PullConsumer
from pyrmq.remoting import Client

if TYPE_CHECKING:
    from collections.abc import Iterator

GROUPS = Path("/sys/fs/cgroup")
LIMIT = 256 * MIB
BODY = bytes(64 << 10)
COUNT = 6_000
"""Messages of 64 KiB: half as much again as the memory."""


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group of 256 MB."""
    old = GROUPS / "memory"
    base, file = (old, "memory.limit_in_bytes") if old.exists() else (GROUPS, "memory.max")
    made = base / f"pyrmq-test-{os.getpid()}"
    try:
        made.mkdir()
        (made / file).write_text(str(LIMIT))
    except OSError as error:
        if made.exists():
            made.rmdir()
        pytest.skip(f"no control group with a limit of memory can be made: {error}")
    yield made
    made.rmdir()


@pytest.fixture
def inside(group: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Start Python processes inside the group."""
    program = tmp_path / "python"
    program.write_text(f'#!/bin/sh\necho $$ > {group}/cgroup.procs && exec {sys.executable} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    return group


@pytest.mark.timeout(180)
def test_it_keeps_within_the_limit_under_load_and_hostile_peers(inside: Path) -> None:
    with ExitStack() as stack:
        names = stack.enter_context(OurNameServer())
        broker = stack.enter_context(OurBroker(names.address))
        assert str(broker.pid) in (inside / "cgroup.procs").read_text().split()
        with Client() as client:
            answer = client.request(broker.address, 30_002, {})
        assert b'"limit_bytes":268435456' in (answer.body or b"")
        producer = stack.enter_context(Producer(name_server=names.address, send_timeout=30))
        # Each port has a limit of its own.
        for address in (broker.address, f"127.0.0.1:{broker.port - 2}"):
            push_halves(connect(address, 100, stack))
        assert broker.alive
        for _ in range(COUNT):
            producer.produce("small", BODY)
        assert producer.flush(60)
        assert producer.stats().failed == 0
        consumer = stack.enter_context(
            PullConsumer(name_server=names.address, group="small", start="first")
        )
        consumer.subscribe("small")
        read = 0
        while read < COUNT:
            got = len(consumer.poll(64, 10))
            assert got, f"{read} of {COUNT} messages were read"
            read += got
        assert broker.alive
