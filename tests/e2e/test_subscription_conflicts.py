"""Members of one group that subscribe differently: the broker warns, counts, and tools show it."""

from __future__ import annotations

import json
import logging
import re
import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.e2e.wire import Connection, await_true

from pyrmq import Admin, PullConsumer, _core
from pyrmq.broker.metrics import Figures
from pyrmq.cli.main import main
from pyrmq.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyrmq.testing import Cluster


def conflicts(shared: Cluster) -> float:
    """Count the heartbeats that both brokers have found to differ."""
    total = 0.0
    for broker in shared.brokers:
        for family in Figures(broker.server).read():
            if family.name == "pyrmq_broker_subscription_conflicts":
                total += sum(float(str(value)) for _, value in family.rows)
    return total


def test_two_subscriptions_in_one_group_are_told(
    shared: Cluster,
    topic: str,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    address = shared.name_server
    with Admin(name_server=address) as admin, ExitStack() as stack:
        admin.create_topic(topic, queues=2)
        group = f"split-{topic}"
        before = conflicts(shared)
        with caplog.at_level(logging.WARNING):
            ids = []
            for tags in ("red", "red", "blue"):
                member = PullConsumer(name_server=address, group=group)
                stack.callback(member.close)
                member.subscribe(topic, tags)
                ids.append(member._control.client_id())
            found = "members of a group subscribe to different messages"
            await_true(lambda: found in caplog.text, 10)
        line = next(one for one in caplog.text.splitlines() if found in one)
        assert all(text in line for text in (group, topic, "red", "blue", ids[2])), line
        assert any(one in line for one in ids[:2]), line
        assert conflicts(shared) > before
        told = admin.describe_group(group).conflicts
        assert told == {topic: {"red": sorted(ids[:2]), "blue": [ids[2]]}}
        main(["group", "describe", group, "--name-server", address])
        shown = capsys.readouterr().out
        assert f"members subscribe to {topic} differently" in shown
        assert re.search(rf"blue: {re.escape(ids[2])}$", shown, re.MULTILINE), shown


def test_members_that_subscribe_alike_are_not_told_of(
    shared: Cluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    address = shared.name_server
    with Admin(name_server=address) as admin, ExitStack() as stack:
        admin.create_topic(topic, queues=2)
        admin.create_topic(f"{topic}-more", queues=2)
        group = f"alike-{topic}"
        before = conflicts(shared)
        for tags in ("red || blue", "blue||red"):
            member = PullConsumer(name_server=address, group=group)
            stack.callback(member.close)
            # One topic after the other: a member that has just begun has not said all.
            member.subscribe(topic, tags)
            member.subscribe(f"{topic}-more")
        told = admin.describe_group(group)
        assert len(told.members) == 2
        assert told.conflicts == {}
        assert conflicts(shared) == before
        assert "subscribe to different messages" not in caplog.text


@contextmanager
def answering(address: str, group: str, topic: str, body: bytes) -> Iterator[str]:
    """Run a member that answers the question what it subscribes to with this; give its id."""
    client_id = f"strange@{group}"
    subscription = {"topic": topic, "subString": "*", "tagsSet": [], "codeSet": []}
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_ACTIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [subscription | {"subVersion": 1, "classFilterMode": False}],
        "unitMode": False,
    }
    beat = {"clientID": client_id, "producerDataSet": [], "consumerDataSet": [consumer]}

    def answer() -> None:
        asked = connection.read()
        while asked.code != RequestCode.GET_CONSUMER_RUNNING_INFO:
            asked = connection.read()
        connection.write(_core.Command(0, {}, body, opaque=asked.opaque, flag=1).encode())

    with Connection(address) as connection:
        assert connection.ask(RequestCode.HEART_BEAT, {}, json.dumps(beat).encode()).code == 0
        thread = threading.Thread(target=answer)
        thread.start()
        yield client_id
        thread.join(15)


@pytest.mark.parametrize(
    "body",
    [b"no JSON", b"[]", b'{"subscriptionSet":5}', b'{"subscriptionSet":["orders"]}'],
    ids=["no JSON", "no object", "no list", "no objects in it"],
)
def test_a_member_whose_answer_makes_no_sense_is_shown_without_its_subscriptions(
    shared: Cluster, topic: str, body: bytes
) -> None:
    group, address = f"strange-{topic}", shared.name_server
    with Admin(name_server=address) as admin:
        admin.create_topic(topic, queues=2)
        with (
            PullConsumer(name_server=address, group=group) as member,
            answering(shared.brokers[0].address, group, topic, body) as strange,
        ):
            member.subscribe(topic)
            known = {
                one.client_id: one.subscriptions for one in admin.describe_group(group).members
            }
            mine = member._control.client_id()
    assert known.keys() == {mine, strange}
    assert known[strange] is None
    assert (known[mine] or {})[topic] == "*"
