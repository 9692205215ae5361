"""The name server's memory under hostile peers, measured while it serves others."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.e2e.hostile import MIB, connect, push, push_halves, resident
from tests.e2e.wire import Connection, body_of, register
from tests.interop.ours import OurNameServer

from pyrmq.codes import RequestCode

PEERS = 100

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="memory is read out of /proc"
)


@pytest.mark.timeout(120)
def test_half_frames_and_unread_answers_of_many_peers_do_not_fill_the_memory() -> None:
    with OurNameServer() as server, ExitStack() as stack:
        good = stack.enter_context(Connection(server.address))
        register(good, "broker-a", [f"topic-{number}" for number in range(3000)])
        ask = {"topic": "topic-7", "acceptStandardJsonOnly": "true"}
        body_of(good.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, ask))
        before = resident(server.pid)
        peers = connect(server.address, PEERS, stack)
        assert push_halves(peers, 200 * MIB) > 200 * MIB
        assert resident(server.pid) - before < 420 * MIB
        register(good, "broker-b", ["small", "smaller"], port=10001)
        # Each requests lists of all topics, and reads no answer.
        question = good.frame(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        peers = connect(server.address, PEERS, stack)
        one = 200 * len(question)
        assert push(peers, question * 200, one, least=one) > one
        assert resident(server.pid) - before < 720 * MIB
        body_of(good.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, ask))
