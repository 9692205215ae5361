"""Request codes that tools use: a test sends each to the broker and checks the answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.wire import Connection, ask, await_true, body_of

from pyrmq import Producer, PullConsumer
from pyrmq.codes import RequestCode, ResponseCode
from pyrmq.testing import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyrmq._core import Command

GROUP = "kitchen"
TOPIC = "orders"
SENDERS = "waiters"


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    """A broker with a topic of two messages, a producer, and a consumer that has read them."""
    with (
        cluster() as one,
        Producer(name_server=one.name_server, group=SENDERS) as producer,
        PullConsumer(name_server=one.name_server, group=GROUP, start="first") as consumer,
    ):
        for _ in range(2):
            producer.send(TOPIC, b"coffee", queue=0)
        consumer.subscribe(TOPIC)
        assert len(consumer.poll(2, timeout=10)) == 2
        consumer.commit()
        yield one


def told(running: Cluster, code: int, body: Any = None, **fields: str) -> Command:  # noqa: ANN401 - any JSON
    data = None if body is None else json.dumps(body).encode()
    return ask(running.broker.address, code, fields, data)


def table(running: Cluster, code: int, **fields: str) -> Any:  # noqa: ANN401 - any JSON
    return body_of(told(running, code, **fields))


def test_the_progress_of_delayed_messages_is_told(running: Cluster) -> None:
    assert isinstance(table(running, RequestCode.GET_ALL_DELAY_OFFSET)["offsetTable"], dict)


def test_a_subscription_is_checked(running: Cluster) -> None:
    def check(kind: str) -> int:
        subscription = {"topic": TOPIC, "subString": "*", "expressionType": kind, "subVersion": 1}
        asked = {"clientId": "c", "group": GROUP, "subscriptionData": subscription}
        return told(running, RequestCode.CHECK_CLIENT_CONFIG, asked).code

    assert check("TAG") == 0
    assert check("SQL92") != 0
    running.broker.reconfigure({"enable_property_filter": True})
    try:
        assert check("SQL92") == ResponseCode.SUBSCRIPTION_PARSE_FAILED  # `*` is no condition.
    finally:
        running.broker.reconfigure({"enable_property_filter": False})


def test_all_groups_and_their_offsets_are_told(running: Cluster) -> None:
    groups = table(running, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    assert groups["subscriptionGroupTable"][GROUP]["consumeEnable"] is True
    # Apache's JSON of this body has numbers for keys.
    offsets = told(running, RequestCode.GET_ALL_CONSUMER_OFFSET).body or b""
    assert f'"{TOPIC}@{GROUP}":{{0:2'.encode() in offsets


def test_the_topics_of_a_broker_of_its_own_are_told(running: Cluster) -> None:
    topics = table(running, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)["topicList"]
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"} <= set(topics)
    assert TOPIC not in topics


def test_producers_are_told_by_group(running: Cluster) -> None:
    def known() -> bool:
        every = table(running, RequestCode.GET_ALL_PRODUCER_INFO)
        return SENDERS in every["data"]

    await_true(known)
    one = table(running, RequestCode.GET_PRODUCER_CONNECTION_LIST, producerGroup=SENDERS)
    assert len(one["connectionSet"]) == 1


def test_a_group_is_told_what_it_reads(running: Cluster) -> None:
    topics = table(running, RequestCode.QUERY_TOPICS_BY_CONSUMER, group=GROUP)["topicList"]
    assert TOPIC in topics
    one = table(running, RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, group=GROUP, topic=TOPIC)
    assert one["subscriptionData"]["topic"] == TOPIC


def test_groups_are_made_by_a_list_and_deleted_by_name(running: Cluster) -> None:
    names = ["bar", "cellar"]
    made = [{"groupName": name, "retryMaxTimes": 3} for name in names]
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
    assert told(running, code, {"groupConfigList": made}).code == 0
    for name in names:
        one = table(running, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group=name)
        assert one["retryMaxTimes"] == 3
    gone = told(running, RequestCode.DELETE_SUBSCRIPTIONGROUP, groupName="bar", cleanOffset="true")
    assert gone.code == 0
    left = table(running, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)["subscriptionGroupTable"]
    assert ("bar" in left, "cellar" in left) == (False, True)


def test_a_topic_is_made_and_changed(running: Cluster) -> None:
    def made(queues: int) -> int:
        fields = {
            "topic": "soup",
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        assert told(running, RequestCode.UPDATE_AND_CREATE_TOPIC, **fields).code == 0
        found = table(running, RequestCode.GET_TOPIC_CONFIG, topic="soup")
        return int(found["writeQueueNums"])

    assert (made(3), made(5)) == (3, 5)


def test_topics_are_made_by_a_list(running: Cluster) -> None:
    made = [
        {"topicName": name, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "order": False}
        for name in ("tea", "cake")
    ]
    code = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
    assert told(running, code, {"topicConfigList": made}).code == 0
    for name in ("tea", "cake"):
        assert table(running, RequestCode.GET_TOPIC_CONFIG, topic=name)["writeQueueNums"] == 2


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        ("batches", "topics with queue.type=BatchCQ are not built yet"),
        (TOPIC, "attempt to update an unchangeable attribute. key: queue.type"),
    ],
)
def test_a_topic_of_batches_is_refused(running: Cluster, topic: str, error: str) -> None:
    before = table(running, RequestCode.GET_ALL_TOPIC_CONFIG)["topicConfigTable"]
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": "2",
        "writeQueueNums": "2",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        "attributes": "+queue.type=BatchCQ",
    }
    answer = told(running, RequestCode.UPDATE_AND_CREATE_TOPIC, **fields)
    assert answer.code != 0
    assert error in (answer.remark or "")
    assert table(running, RequestCode.GET_ALL_TOPIC_CONFIG)["topicConfigTable"] == before


def test_lite_pull_consumers_are_served_as_others(running: Cluster) -> None:
    asked = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": "0",
        "queueOffset": "0",
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "0",
        "subscription": "*",
        "subVersion": "0",
    }
    answer = told(running, RequestCode.LITE_PULL_MESSAGE, **asked)
    assert (answer.code, answer.fields["nextBeginOffset"]) == (0, "2")


def test_a_reply_reaches_the_client_that_it_names(running: Cluster) -> None:
    with Connection(running.broker.address) as requester:
        client = {"clientID": "asker", "producerDataSet": [{"groupName": "askers"}]}
        beat = {**client, "consumerDataSet": []}
        assert requester.ask(RequestCode.HEART_BEAT, {}, json.dumps(beat).encode()).code == 0
        pairs = {"REPLY_TO_CLIENT": "asker", "CORRELATION_ID": "7"}
        reply = {
            "producerGroup": "repliers",
            "topic": "DefaultCluster_REPLY_TOPIC",
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "1",
            "queueId": "0",
            "sysFlag": "0",
            "bornTimestamp": "1700000000000",
            "flag": "0",
            "properties": "".join(f"{key}\x01{value}\x02" for key, value in pairs.items()),
            "reconsumeTimes": "0",
            "unitMode": "false",
        }
        with Connection(running.broker.address) as replier:
            replier.send(RequestCode.SEND_REPLY_MESSAGE, reply, b"hot")
            pushed = requester.read()
            assert (pushed.code, pushed.body) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"hot")
