"""The broker's memory under hostile peers, measured while it serves others."""

from __future__ import annotations

import re
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.e2e.hostile import MIB, connect, push_halves, resident
from tests.interop.ours import OurBroker, OurNameServer

from pyrmq import Producer

PEERS = 100

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="memory is read out of /proc"
)


@pytest.mark.timeout(180)
def test_half_requests_of_many_peers_do_not_fill_the_memory(topic: str) -> None:
    with OurNameServer() as names, OurBroker(names.address) as broker, ExitStack() as stack:
        producer = stack.enter_context(Producer(name_server=names.address, send_timeout=30))
        producer.send(topic, bytes(3 * MIB))
        before = resident(broker.pid)
        peers = connect(broker.address, PEERS, stack)
        assert push_halves(peers, 100 * MIB) > 100 * MIB
        # 128 MiB for all, one more read on each, and the few that may exceed it.
        assert resident(broker.pid) - before < 330 * MIB
        # Others send frames of the same size.
        for _ in range(3):
            producer.send(topic, bytes(3 * MIB))
        # Connections whose rest does not arrive are closed, with a line in the log.
        until = time.monotonic() + 60
        pattern = (
            r"closed a connection: the rest of a frame did not arrive.* bytes=\d+ limit=134217728"
        )
        while not re.search(pattern, broker.log.read_text()):
            assert time.monotonic() < until, broker.log_tail()
            time.sleep(0.05)
