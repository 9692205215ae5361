"""Options that both consumers have: strategies, broadcasting, filters, operators' questions."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.test_pull_verbs import polled
from tests.e2e.test_push import committed, make
from tests.e2e.wire import Connection, await_true

from pyrmq import ConfigError, Producer, PullConsumer, PushConsumer, QueueId, _core
from pyrmq.codes import RequestCode
from pyrmq.errors import BrokerError, FilterError
from pyrmq.routing.allocate import AveragelyByCircle, ByConfig, ConsistentHash

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyrmq.testing import Cluster

QUEUES = 4


def await_shares(
    members: Sequence[PullConsumer], topic: str, strategy: AveragelyByCircle | ConsistentHash
) -> None:
    """Wait until each member has the queues that the strategy gives it: perhaps none."""

    def have_theirs() -> bool:
        found = [sorted(q for q in one.assignment() if q.topic == topic) for one in members]
        queues = sorted(queue for share in found for queue in share)
        ids = [member._control.client_id() for member in members]
        wanted = [sorted(strategy.allocate(own, queues, sorted(ids))) for own in ids]
        return len(set(queues)) == 2 * QUEUES and found == wanted

    await_true(have_theirs, 20)


@pytest.mark.parametrize(
    ("allocate", "strategy"),
    [
        ("circle", AveragelyByCircle()),
        ("consistent_hash", ConsistentHash()),
        (AveragelyByCircle(), AveragelyByCircle()),
    ],
)
def test_a_strategy_shares_the_queues(
    address: str,
    topic: str,
    allocate: Any,  # noqa: ANN401 - a name or a strategy
    strategy: AveragelyByCircle | ConsistentHash,
) -> None:
    make(address, topic, [], queues=QUEUES)
    names = ["one", "two"]
    members = [
        PullConsumer(name_server=address, group=f"g-{topic}", instance_name=name, allocate=allocate)
        for name in names
    ]
    try:
        for member in members:
            member.subscribe(topic)
        await_shares(members, topic, strategy)
    finally:
        for member in members:
            member.close()


def test_a_configured_member_has_its_queues_and_listens_to_them(address: str, topic: str) -> None:
    make(address, topic, [str(number) for number in range(40)], queues=QUEUES)
    with PullConsumer(name_server=address, group="looks") as looker:
        mine = looker.queues(topic)[3:5]
    seen: Counter[tuple[str, int]] = Counter()
    consumer = PushConsumer(name_server=address, group=f"g-{topic}", allocate=ByConfig(mine))
    consumer.subscribe(topic, lambda one: seen.update([(one.broker, one.queue_id)]))
    with consumer:
        await_true(lambda: sum(seen.values()) == 10, 10)
        assert {queue for queue in consumer.assignment() if queue.topic == topic} == set(mine)
    assert set(seen) == {(queue.broker, queue.queue_id) for queue in mine}


def test_a_strategy_that_raises_is_told(
    address: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    make(address, topic, [], queues=1)

    class Broken:
        def allocate(self, client_id: str, queues: object, client_ids: object) -> list[QueueId]:
            raise LookupError(f"no room for {client_id}")

    with (
        PullConsumer(name_server=address, group=f"g-{topic}", allocate=Broken()) as consumer,
        caplog.at_level(logging.ERROR, "pyrmq.consumer"),
        pytest.raises(ConfigError, match="the strategy of option `allocate`"),
    ):
        consumer.subscribe(topic)
    assert "no room for" in caplog.text
    with pytest.raises(ConfigError, match="it must be 'average', 'circle'"):
        PullConsumer(name_server=address, group="g", allocate="rooms")  # type: ignore[arg-type]


def test_an_orderly_member_whose_queue_another_one_has_warns(
    address: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Members with different strategies: each computes that the queue is its own."""
    make(address, topic, ["x"], queues=1)
    with PullConsumer(name_server=address, group="looks") as looker:
        mine = looker.queues(topic)
    seen: list[str] = []
    text = "the queue waits for its lock, which another client of the group has"

    def member() -> PushConsumer:
        consumer = PushConsumer(
            name_server=address,
            group=f"g-{topic}",
            order="queue",
            allocate=ByConfig(mine),
            rebalance=1.0,
        )
        consumer.subscribe(topic, lambda one: seen.append(one.body.decode()))
        return consumer

    with caplog.at_level(logging.WARNING, "pyrmq"), member():
        await_true(lambda: seen == ["x"], 10)
        assert text not in caplog.text
        with member():
            await_true(lambda: text in caplog.text, 20)
            await_true(lambda: caplog.text.count(text) == len(mine), 10)
            # Each queue is reported once.
            time.sleep(1.5)
            assert caplog.text.count(text) == len(mine)


def test_every_member_of_a_broadcasting_group_gets_every_message(
    address: str, topic: str, tmp_path: Path
) -> None:
    make(address, topic, [str(number) for number in range(20)], queues=2)
    seen: dict[str, Counter[str]] = {name: Counter() for name in ("one", "two")}

    def member(name: str) -> PushConsumer:
        consumer = PushConsumer(
            name_server=address,
            group=f"g-{topic}",
            broadcasting=True,
            instance_name=name,
            offset_dir=tmp_path,
        )
        consumer.subscribe(topic, lambda one: seen[name].update([one.body.decode()]))
        return consumer

    for _ in range(2):
        with member("one"), member("two"):
            await_true(lambda: all(len(counts) == 20 for counts in seen.values()), 10)
    assert all(set(counts.values()) == {1} for counts in seen.values()), "a member goes on"
    assert set(committed(address, f"g-{topic}", topic).values()) == {None}, "brokers keep none"
    files = sorted(tmp_path.rglob("offsets.json"))
    assert [file.parts[-2] for file in files] == [f"g-{topic}"] * 2
    assert [file.parts[-3].split("@")[1] for file in files] == ["one", "two"]
    rows = _core.decode_local_offsets(files[0].read_bytes())
    assert sum(offset for _, offset in rows) == 20


def test_a_broadcasting_member_that_polls_keeps_its_offsets(
    address: str, topic: str, tmp_path: Path
) -> None:
    make(address, topic, [str(number) for number in range(10)], queues=1)

    def member() -> PullConsumer:
        return PullConsumer(
            name_server=address,
            group=f"g-{topic}",
            broadcasting=True,
            offset_dir=tmp_path,
            auto_commit=None,
        )

    with member() as consumer:
        consumer.subscribe(topic)
        consumer.pause(consumer.assignment()[:1])
        first = [message.body for message in polled(consumer, 1)]
        consumer.commit()
        assert sum(o.committed or 0 for o in consumer.offsets().values()) == len(first)
    with member() as consumer:
        consumer.subscribe(topic)
        rest = [message.body for message in polled(consumer, 10 - len(first))]
    assert sorted(first + rest) == sorted(str(number).encode() for number in range(10))
    (file,) = tmp_path.rglob("offsets.json")
    file.write_text("{ damaged")
    file.with_name("offsets.json.bak").unlink(missing_ok=True)
    with pytest.raises(ConfigError, match="cannot be read"):
        member()


def test_a_broadcasting_group_drops_what_fails(
    address: str, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make(address, topic, ["1", "2", "3"], queues=1)
    calls: Counter[str] = Counter()

    def listener(body: str) -> None:
        calls[body] += 1
        raise RuntimeError(body)

    consumer = PushConsumer(
        name_server=address, group=f"g-{topic}", broadcasting=True, offset_dir=tmp_path
    )
    consumer.subscribe(topic, listener)
    with caplog.at_level(logging.WARNING), consumer:
        await_true(lambda: consumer.stats()["dead"] == 3, 10)
    assert set(calls.values()) == {1}
    rows = _core.decode_local_offsets(next(tmp_path.rglob("offsets.json")).read_bytes())
    assert sum(offset for _, offset in rows) == 3


def test_a_wrong_condition_is_refused_with_its_place(address: str, topic: str) -> None:
    make(address, topic, [], queues=1)
    with PullConsumer(name_server=address, group=f"g-{topic}") as consumer:
        with pytest.raises(FilterError, match="character 4") as refused:
            consumer.subscribe(topic, sql="a > > 5")
        assert refused.value.position == 4
        with pytest.raises(ConfigError, match="not both"):
            consumer.subscribe(topic, "red", sql="a > 5")


def test_a_condition_that_a_broker_does_not_evaluate_is_refused(address: str, topic: str) -> None:
    """A broker without ``enablePropertyFilter`` would give nothing, or everything."""
    make(address, topic, ["x"], queues=1)
    with PullConsumer(name_server=address, group=f"g-{topic}") as consumer:
        with pytest.raises(BrokerError, match="enablePropertyFilter"):
            consumer.subscribe(topic, sql="a >= 7")
        assert not consumer.assignment()


def ask(running: Cluster, code: RequestCode, fields: dict[str, str]) -> Any:  # noqa: ANN401 - JSON
    """Ask the first broker, which passes the question on to the consumer."""
    with Connection(running.brokers[0].address) as connection:
        answer = connection.ask(code, fields)
    assert answer.code == 0, answer.remark
    return _core.parse_json(answer.body or b"")


def test_operators_are_shown_a_consumer_and_its_stacks(
    shared: Cluster, address: str, topic: str
) -> None:
    make(address, topic, ["x"], queues=1)
    began, release = threading.Event(), threading.Event()

    def waits_for_release(body: str) -> None:
        began.set()
        release.wait(30)

    group = f"g-{topic}"
    consumer = PushConsumer(name_server=address, group=group, threads=3)
    consumer.subscribe(topic, waits_for_release, tags="*")
    with consumer:
        assert began.wait(10)
        fields = {
            "consumerGroup": group,
            "clientId": consumer._control.client_id(),
            "jstackEnable": "true",
        }
        info = ask(shared, RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
        release.set()
    assert info["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert info["properties"]["PROP_THREADPOOL_CORE_SIZE"] == "3"
    assert int(info["properties"]["PROP_CONSUMER_START_TIMESTAMP"]) > 0
    assert "waits_for_release" in info["jstack"]
    queues = {dict(name)["queueId"] for name in info["mqTable"] if dict(name)["topic"] == topic}
    assert queues == {0}
    assert sum(state["cachedMsgCount"] for state in info["mqTable"].values()) == 1
    subscriptions = {each["topic"]: each["subString"] for each in info["subscriptionSet"]}
    assert subscriptions[topic] == "*"
    json.dumps(info["properties"])


@pytest.mark.parametrize(
    ("raised", "wanted"), [(None, "CR_SUCCESS"), (ValueError("no"), "CR_THROW_EXCEPTION")]
)
def test_an_operator_has_one_message_handled(
    shared: Cluster, address: str, topic: str, raised: ValueError | None, wanted: str
) -> None:
    make(address, topic, [], queues=1)
    calls: list[str] = []

    def listener(body: str) -> None:
        calls.append(body)
        if raised is not None and len(calls) > 1:
            raise raised

    group = f"g-{topic}"
    consumer = PushConsumer(name_server=address, group=group)
    consumer.subscribe(topic, listener)
    with consumer, Producer(name_server=address) as producer:
        queue = QueueId(topic, shared.brokers[0].name, 0)
        sent = producer.send(topic, "again", queue=queue)
        await_true(lambda: calls == ["again"], 10)
        fields = {
            "consumerGroup": group,
            "clientId": consumer._control.client_id(),
            "msgId": sent.offset_message_id,
            "brokerName": queue.broker,
        }
        result = ask(shared, RequestCode.CONSUME_MESSAGE_DIRECTLY, fields)
    assert calls == ["again", "again"]
    assert result["consumeResult"] == wanted
    assert ("no" in (result.get("remark") or "")) == (raised is not None)
