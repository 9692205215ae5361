"""The scenarios of Apache's integration tests of consumers, with the real client, on our broker.

A test names the classes of Apache's module `test` that have its scenario; docs/compat.md has a
table. ``--rocketmq-control`` runs them on a real broker.
"""

from __future__ import annotations

import base64
import time
from collections import Counter
from contextlib import contextmanager
from itertools import chain, count
from typing import TYPE_CHECKING

import pytest

from tests.interop.driver import DriverError, bodies
from tests.interop.test_mqadmin import until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tests.interop.cluster import Cluster
    from tests.interop.driver import Driver

PAIRS = (("ours", "JSON"),)
FROM_5 = True

QUEUES = 4
"""Of each topic."""

SYSTEM_ERROR, QUERY_NOT_FOUND, INVALID_PARAMETER = 1, 22, 29

STEP_S = 0.7
"""How long messages are sent before a member comes or goes: rebalances of the client take less."""


@contextmanager
def members(driver: Driver, number: int = 0, **options: object) -> Iterator[list[str]]:
    """Start push consumers; those that the list has at the end are stopped."""
    running: list[str] = []
    try:
        for _ in range(number):
            start(driver, running, **options)
        yield running
    finally:
        for name in running:
            driver.call("push.stop", id=name)


def start(driver: Driver, running: list[str], **options: object) -> str:
    """Start another push consumer, and add it to the list."""
    running.append(driver.new_id("push"))
    driver.call("push.start", id=running[-1], **options)
    return running[-1]


def named(prefix: str, number: int) -> list[bytes]:
    """The bodies that the driver sends."""
    return [f"{prefix}-{at}".encode() for at in range(number)]


def had(driver: Driver, consumers: Iterable[str], prefix: str = "") -> list[list[bytes]]:
    """Return the bodies that each consumer has received, or those with a prefix."""
    found = [bodies(driver.pushed(one, 0, timeout=0)) for one in consumers]
    return [[body for body in one if body.startswith(prefix.encode())] for one in found]


def await_all(driver: Driver, consumers: Iterable[str], wanted: Iterable[bytes]) -> None:
    """Wait until the consumers together have these bodies."""
    names, left = [*consumers], {*wanted}
    deadline = time.monotonic() + 40
    while left:
        assert time.monotonic() < deadline, left
        left -= {*chain.from_iterable(had(driver, names))}


def settle(driver: Driver, producer: str, topic: str, consumers: Sequence[str]) -> None:
    """Wait until the consumers share the queues evenly: of a message in each one has its part."""
    few, more = divmod(QUEUES, len(consumers))
    shares = sorted([few + 1] * more + [few] * (len(consumers) - more))
    deadline = time.monotonic() + 40
    for turn in count():
        assert time.monotonic() < deadline, "the queues are not shared evenly"
        prefix = f"settle{turn}"
        driver.send(producer, topic, count=QUEUES, shards=QUEUES, prefix=prefix)
        await_all(driver, consumers, named(prefix, QUEUES))
        if sorted(map(len, had(driver, consumers, f"{prefix}-"))) == shares:
            return


def await_start(driver: Driver, producer: str, topic: str, consumer: str) -> None:
    """Wait until a consumer reads every queue of its topic."""
    deadline = time.monotonic() + 40
    for turn in count():
        assert time.monotonic() < deadline, "the consumer does not begin"
        prefix = f"{consumer}-{turn}"
        driver.send(producer, topic, count=QUEUES, shards=QUEUES, prefix=prefix)
        known = len(driver.pushed(consumer, 0, timeout=0))
        driver.pushed(consumer, known + QUEUES, timeout=1)
        if len(had(driver, [consumer], f"{prefix}-")[0]) == QUEUES:
            return


@pytest.mark.nightly
@pytest.mark.parametrize("number", [2, 4])
def test_members_share_what_comes_evenly(
    driver: Driver, cluster: Cluster, topic: str, number: int
) -> None:
    """NormalMsgStaticBalanceIT."""
    options = {"namesrv": cluster.namesrv, "topic": topic, "group": f"{topic}-group"}
    with (
        driver.producer(cluster.namesrv) as producer,
        members(driver, number, **options) as names,
    ):
        settle(driver, producer, topic, names)
        driver.send(producer, topic, count=400)
        await_all(driver, names, named("m", 400))
        found = had(driver, names, "m-")
    assert [len(one) for one in found] == [400 // number] * number
    assert len({*chain.from_iterable(found)}) == 400


@pytest.mark.nightly
@pytest.mark.parametrize("number", [2, 3])
def test_the_queues_of_a_member_that_ends_are_shared_by_the_others(
    driver: Driver, cluster: Cluster, topic: str, number: int
) -> None:
    """NormalMsgDynamicBalanceIT."""
    options = {"namesrv": cluster.namesrv, "topic": topic, "group": f"{topic}-group"}
    with (
        driver.producer(cluster.namesrv) as producer,
        members(driver, number, **options) as names,
    ):
        settle(driver, producer, topic, names)
        driver.send(producer, topic, count=100)
        await_all(driver, names, named("m", 100))
        driver.call("push.stop", id=names.pop())
        settle(driver, producer, topic, names)
        driver.send(producer, topic, count=100, prefix="later")
        await_all(driver, names, named("later", 100))
        found = had(driver, names, "later-")
    assert [len(one) for one in found] == [100 // len(names)] * len(names)


def test_a_member_is_told_which_queues_are_left_to_it(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    """NormalMsgDynamicBalanceIT.testMessageQueueListener."""
    group = f"{topic}-group"
    with driver.push(cluster.namesrv, topic, group=group) as one:
        assert shares(driver, one, topic, 1) == [[0, 1, 2, 3]]
        with driver.push(cluster.namesrv, topic, group=group):
            _, left = shares(driver, one, topic, 2)
            assert len(left) == QUEUES // 2
        assert shares(driver, one, topic, 3)[2] == [0, 1, 2, 3]


def shares(driver: Driver, consumer: str, topic: str, count: int) -> list[list[int]]:
    """Return the queues that a client has announced to its listener, after `count` times."""
    deadline = time.monotonic() + 30
    while True:
        rows = driver.call("push.state", id=consumer)["shares"]
        found = [row["queues"] for row in rows if row["topic"] == topic]
        if len(found) >= count:
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


@pytest.mark.nightly
def test_members_come_and_go_while_messages_are_sent(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    """DynamicAddConsumerIT, DynamicCrashConsumerIT, DynamicAddAndCrashIT."""
    options = {"namesrv": cluster.namesrv, "topic": topic, "group": f"{topic}-group"}
    gone: set[bytes] = set()
    sent = 0
    with driver.producer(cluster.namesrv) as producer, members(driver) as running:
        for step in ("come", "come", "come", "go", "go"):
            if step == "come":
                start(driver, running, **options)
            else:
                ended = driver.call("push.stop", id=running.pop())
                gone.update(bodies(ended["messages"]))
            end = time.monotonic() + STEP_S
            while time.monotonic() < end:
                driver.send(producer, topic, count=5, start=sent)
                sent += 5
        assert gone, "those that have ended had their share"
        await_all(driver, running, {*named("m", sent)} - gone)


AS_APACHE: dict[str, object] = {"broadcast": True, "from": "LAST_OFFSET"}
"""Apache's tests leave the start at its default."""


def test_each_broadcasting_member_of_each_group_gets_everything(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    """NormalMsgTwoSameGroupConsumerIT, BroadcastNormalMsgTwoDiffGroupRecvIT."""
    group = f"{topic}-group"
    with (
        driver.producer(cluster.namesrv) as producer,
        driver.push(cluster.namesrv, topic, group=group, **AS_APACHE) as one,
        driver.push(cluster.namesrv, topic, group=group, **AS_APACHE) as two,
        driver.push(cluster.namesrv, topic, group=f"{group}-other", **AS_APACHE) as other,
    ):
        for name in (one, two, other):
            await_start(driver, producer, topic, name)
        driver.send(producer, topic, count=16)
        for name in (one, two, other):
            await_all(driver, [name], named("m", 16))
            assert sorted(had(driver, [name], "m-")[0]) == sorted(named("m", 16))


def test_a_broadcasting_member_is_not_affected_by_others_that_come_and_go(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    """BroadcastNormalMsgRecvCrashIT, BroadcastNormalMsgRecvStartLaterIT."""
    group = f"{topic}-group"
    with (
        driver.producer(cluster.namesrv) as producer,
        driver.push(cluster.namesrv, topic, group=group, **AS_APACHE) as stays,
    ):
        with driver.push(cluster.namesrv, topic, group=group, **AS_APACHE) as ends:
            for name in (stays, ends):
                await_start(driver, producer, topic, name)
            driver.send(producer, topic, count=16)
            for name in (stays, ends):
                await_all(driver, [name], named("m", 16))
        driver.send(producer, topic, count=16, prefix="alone")
        await_all(driver, [stays], named("alone", 16))
        with driver.push(cluster.namesrv, topic, group=group, **AS_APACHE) as late:
            await_start(driver, producer, topic, late)
            driver.send(producer, topic, count=16, prefix="last")
            await_all(driver, [late], named("last", 16))
        await_all(driver, [stays], named("last", 16))
        for prefix in ("m", "alone", "last"):
            assert sorted(had(driver, [stays], f"{prefix}-")[0]) == sorted(named(prefix, 16))


@pytest.mark.nightly
def test_a_broadcasting_member_gets_nothing_of_before_its_start(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    """BroadcastNormalMsgNotReceiveIT."""
    group = f"{topic}-group"
    with (
        driver.producer(cluster.namesrv) as producer,
        driver.push(cluster.namesrv, topic, group=group, **AS_APACHE) as first,
    ):
        await_start(driver, producer, topic, first)
        driver.send(producer, topic, count=16)
        await_all(driver, [first], named("m", 16))
        with driver.push(cluster.namesrv, topic, group=group, **AS_APACHE) as late:
            await_start(driver, producer, topic, late)
            assert had(driver, [late], "m-") == [[]]


@pytest.mark.nightly
def test_broadcasting_members_get_the_messages_of_a_queue_in_order(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    """OrderMsgBroadcastIT."""
    options: dict[str, object] = {"broadcast": True, "orderly": True}
    group = f"{topic}-group"
    with (
        driver.producer(cluster.namesrv) as producer,
        driver.push(cluster.namesrv, topic, group=group, **options) as one,
        driver.push(cluster.namesrv, topic, group=group, **options) as two,
    ):
        driver.send(producer, topic, count=40, shards=QUEUES)
        for name in (one, two):
            rows = driver.pushed(name, 40)
            assert sorted(bodies(rows)) == sorted(named("m", 40))
            for queue in range(QUEUES):
                mine = [row["queueOffset"] for row in rows if row["queueId"] == queue]
                assert mine == list(range(10))


@pytest.mark.nightly
def test_a_broadcasting_member_that_refuses_messages_takes_nothing_from_others(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    """BroadcastNormalMsgRecvFailIT."""
    group = f"{topic}-group"
    with (
        driver.producer(cluster.namesrv) as producer,
        driver.push(cluster.namesrv, topic, group=group, broadcast=True) as takes,
        driver.push(cluster.namesrv, topic, group=group, broadcast=True, later=True) as refuses,
    ):
        driver.send(producer, topic, count=16)
        await_all(driver, [takes, refuses], named("m", 16))
        for name in (takes, refuses):
            rows = driver.pushed(name, 17, timeout=1)
            assert sorted(bodies(rows)) == sorted(named("m", 16)), "a broadcast comes once"


def test_broadcasting_members_get_the_messages_of_their_tag(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    """BroadcastTwoConsumerFilterIT, BroadcastTwoConsumerSubTagIT."""
    options: dict[str, object] = {"broadcast": True, "expression": "red"}
    group = f"{topic}-group"
    with (
        driver.producer(cluster.namesrv) as producer,
        driver.push(cluster.namesrv, topic, group=group, **options) as one,
        driver.push(cluster.namesrv, topic, group=group, **options) as two,
    ):
        driver.send(producer, topic, count=40, tag="blue", prefix="blue")
        driver.send(producer, topic, count=40, tag="red")
        for name in (one, two):
            await_all(driver, [name], named("m", 40))
            assert sorted(had(driver, [name])[0]) == sorted(named("m", 40))


@pytest.mark.nightly
def test_a_broadcasting_member_of_one_tag_takes_nothing_from_one_of_all(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    """BroadcastTwoConsumerSubDiffTagIT."""
    group = f"{topic}-group"
    with (
        driver.producer(cluster.namesrv) as producer,
        driver.push(cluster.namesrv, topic, group=group, broadcast=True) as every,
        driver.push(cluster.namesrv, topic, group=group, broadcast=True, expression="red") as red,
    ):
        driver.send(producer, topic, count=40, tag="red")
        for name in (every, red):
            await_all(driver, [name], named("m", 40))
            assert sorted(had(driver, [name])[0]) == sorted(named("m", 40))


def test_groups_get_the_tags_that_they_want(driver: Driver, cluster: Cluster, topic: str) -> None:
    """MulTagSubIT, TagMessageWith1ConsumerIT, TagMessageWithMulConsumerIT."""
    tags = ("red", "green", "blue", None)
    wanted: dict[str, set[str | None]] = {
        "red": {"red"},
        "red||green": {"red", "green"},
        "green|| none": {"green"},
        "none": set(),
        "*": {*tags},
        "": {*tags},
    }
    with driver.producer(cluster.namesrv) as producer, members(driver) as running:
        for number, expression in enumerate(wanted):
            group = f"{topic}-group-{number}"
            where = {"namesrv": cluster.namesrv, "topic": topic, "group": group}
            start(driver, running, expression=expression, **where)
        for tag in tags:
            driver.send(producer, topic, count=10, tag=tag, prefix=str(tag))
        for expression, name in zip(wanted, running, strict=True):
            due = [body for tag in wanted[expression] for body in named(str(tag), 10)]
            await_all(driver, [name], due)
            assert sorted(had(driver, [name])[0]) == sorted(due), expression


def test_members_of_a_group_with_one_tag_share_its_messages(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    """TagMessageWithSameGroupConsumerIT."""
    options = {"namesrv": cluster.namesrv, "topic": topic, "group": f"{topic}-group"}
    with driver.producer(cluster.namesrv) as producer, members(driver) as running:
        first = start(driver, running, expression="red", **options)
        driver.send(producer, topic, count=20, tag="red")
        start(driver, running, expression="red", **options)
        for tag in ("blue", "red"):
            driver.send(producer, topic, count=20, tag=tag, prefix=tag)
        gone = {*bodies(driver.call("push.stop", id=running.pop())["messages"])}
        driver.send(producer, topic, count=20, tag="red", prefix="later")
        due = {*named("m", 20), *named("red", 20), *named("later", 20)}
        assert gone <= due
        await_all(driver, [first], due - gone)
        assert {*had(driver, [first])[0]} <= due


def test_members_subscribe_to_several_topics(driver: Driver, cluster: Cluster, topic: str) -> None:
    """OneConsumerMulTopicIT, MulConsumerMulTopicIT."""
    other = f"{topic}-other"
    driver.call("admin.createTopic", namesrv=cluster.namesrv, topic=other, broker=cluster.broker)
    due = named("m", 10) + named("red", 10)
    with (
        driver.producer(cluster.namesrv) as producer,
        driver.push(cluster.namesrv, topic, group=f"{topic}-alone") as alone,
        driver.push(cluster.namesrv, topic, group=f"{topic}-pair") as one,
        driver.push(cluster.namesrv, topic, group=f"{topic}-pair") as two,
    ):
        for name in (alone, one, two):
            driver.call("push.subscribe", id=name, topic=other, expression="red")
        driver.send(producer, topic, count=10)
        for tag in ("blue", "red"):
            driver.send(producer, other, count=10, tag=tag, prefix=tag)
        await_all(driver, [alone], due)
        await_all(driver, [one, two], due)
        assert sorted(had(driver, [alone])[0]) == sorted(due)
        assert {*chain.from_iterable(had(driver, [one, two]))} == {*due}


@pytest.mark.nightly
def test_a_condition_selects_for_listeners_and_for_pulls(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    """SqlFilterIT."""
    set_option(driver, cluster, "enablePropertyFilter", "true")
    sql = "(TAGS is not null and TAGS in ('TagA', 'TagB'))"
    due = sorted(named("TagA", 16) + named("TagB", 16))
    group = f"{topic}-group"
    with (
        driver.producer(cluster.namesrv) as producer,
        driver.push(cluster.namesrv, topic, group=group, sql=sql) as consumer,
    ):
        for tag in ("TagA", "TagB", "TagC"):
            driver.send(producer, topic, count=16, tag=tag, prefix=tag)
        assert sorted(bodies(driver.pushed(consumer, 32))) == due
    with driver.pull(cluster.namesrv, group=f"{group}-pulls") as consumer:
        await_version(driver, consumer, topic, sql)
        found: list[bytes] = []
        for queue in range(QUEUES):
            offset, status = 0, ""
            while status != "NO_NEW_MSG":
                asked = {"topic": topic, "queue": queue, "offset": offset, "sql": sql}
                (row,) = driver.call("pull.pull", id=consumer, **asked)["queues"]
                found += bodies(row["messages"])
                offset, status = row["next"], row["status"]
    assert sorted(found) == due


def await_version(driver: Driver, consumer: str, topic: str, sql: str) -> None:
    """Wait until a client knows from a heartbeat that its broker is new enough for conditions."""
    deadline = time.monotonic() + 20
    while True:
        try:
            driver.call("pull.pull", id=consumer, topic=topic, sql=sql)
        except DriverError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
        else:
            return


def await_progress(
    driver: Driver, cluster: Cluster, group: str, *, behind: int, in_flight: int
) -> None:
    """Wait until mqadmin shows these sums for a group."""
    pattern = rf"Diff Total: {behind}\nConsume Inflight Total: {in_flight}\b"
    until(driver, f"consumerProgress -n {cluster.namesrv} -g {group}", pattern)


@pytest.mark.nightly
def test_the_lag_is_what_is_stored_and_not_committed(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    """LagCalculationIT.testCalculateLag."""
    group = f"{topic}-group"
    with driver.producer(cluster.namesrv) as producer:
        with driver.push(cluster.namesrv, topic, group=group) as consumer:
            driver.send(producer, topic, count=40, shards=QUEUES)
            assert len(driver.pushed(consumer, 40)) == 40
            await_progress(driver, cluster, group, behind=0, in_flight=0)
            driver.call("push.hold", id=consumer, on=True)
            driver.send(producer, topic, count=40, shards=QUEUES)
            await_progress(driver, cluster, group, behind=40, in_flight=40)
            driver.call("push.hold", id=consumer, on=False)
            assert len(driver.pushed(consumer, 80)) == 80
            await_progress(driver, cluster, group, behind=0, in_flight=0)
        driver.send(producer, topic, count=40, shards=QUEUES)
    await_progress(driver, cluster, group, behind=40, in_flight=0)


def test_a_member_reads_nothing_while_it_does_not_learn_its_offset(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    """OffsetNotFoundIT."""
    group = f"{topic}-group"
    with driver.producer(cluster.namesrv) as producer:
        driver.send(producer, topic, count=10)
    with (
        driver.push(cluster.namesrv, topic, group=group, query="nameless") as silent,
        driver.push(cluster.namesrv, topic, group=f"{group}-strict", query="strict") as strict,
    ):
        assert sorted(bodies(driver.pushed(strict, 10))) == named("m", 10)
        assert driver.call("push.state", id=strict)["queryCodes"] == [QUERY_NOT_FOUND]
        assert driver.pushed(silent, 1, timeout=1) == []
        refused = INVALID_PARAMETER if cluster.kind == "ours" else SYSTEM_ERROR
        assert driver.call("push.state", id=silent)["queryCodes"] == [refused]
    with driver.push(cluster.namesrv, topic, group=group) as consumer:
        assert sorted(bodies(driver.pushed(consumer, 10))) == named("m", 10)


@pytest.mark.nightly
def test_a_listener_begins_again_where_an_operator_has_reset_its_group(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    """OffsetResetIT."""
    group = f"{topic}-group"
    where = f"-n {cluster.namesrv} -g {group} -t {topic}"
    began = round(time.time() * 1000)

    def await_calls(total: int) -> Counter[bytes]:
        deadline = time.monotonic() + 60
        while True:
            seen = Counter(had(driver, [consumer], "m-")[0])
            if seen.total() >= total:
                return seen
            assert time.monotonic() < deadline, seen
            time.sleep(0.1)

    with (
        driver.producer(cluster.namesrv) as producer,
        driver.push(cluster.namesrv, topic, group=group) as consumer,
    ):
        driver.send(producer, topic, count=40, shards=QUEUES)
        calls = await_calls(40)
        await_progress(driver, cluster, group, behind=0, in_flight=0)
        # The command ignores offset 0.
        for how, again in ((f"-s 0 -b {cluster.broker} -q 3 -o 1", 9), (f"-s {began}", 40)):
            driver.mqadmin(f"resetOffsetByTime {where} {how}")
            # The answer to a pull tells of it, and a broker holds a pull for a while.
            driver.send(producer, topic, count=QUEUES, shards=QUEUES, prefix="wakes")
            calls = await_calls(calls.total() + again)
            await_progress(driver, cluster, group, behind=0, in_flight=0)
    assert sorted(calls.values()) == [2] * 31 + [3] * 9


@pytest.mark.nightly
@pytest.mark.parametrize(("level", "seconds"), [(1, 1), (2, 5), (3, 10), (4, 30)])
def test_a_delayed_message_comes_between_its_level_and_the_next(
    driver: Driver, cluster: Cluster, topic: str, level: int, seconds: int
) -> None:
    """NormalMsgDelayIT."""
    later = {1: 5, 2: 10, 3: 30, 4: 60}[level]
    with (
        driver.push(cluster.namesrv, topic, group=f"{topic}-group") as consumer,
        driver.producer(cluster.namesrv) as producer,
    ):
        driver.send(producer, topic, count=100, delay=level)
        rows = driver.pushed(consumer, 100, timeout=later + 10)
    assert sorted(bodies(rows)) == sorted(named("m", 100))
    for row in rows:
        assert seconds * 1000 <= row["storeTimestamp"] - row["bornTimestamp"] < later * 1000


@pytest.mark.nightly
def test_timer_messages_are_taken_back_and_no_others(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    """SendAndRecallDelayMessageIT."""
    set_option(driver, cluster, "recallMessageEnable", "true")

    def ways() -> tuple[dict[str, int], ...]:
        at = round(time.time() * 1000) + 6000
        timed = ({"setDelayTimeMs": 6000}, {"setDelayTimeSec": 6}, {"setDeliverTimeMs": at})
        return ({}, {"delay": 1}, *timed)

    with (
        driver.producer(cluster.namesrv) as producer,
        driver.push(cluster.namesrv, topic, group=f"{topic}-group") as consumer,
    ):
        for prefix in ("kept", "taken"):
            for number, way in enumerate(ways()):
                (sent,) = driver.send(producer, topic, prefix=prefix, start=number, **way)
                handle = sent.get("recallHandle")
                assert (handle is None) == (number < 2), "only timer messages can be recalled"
                if handle is not None and prefix == "taken":
                    asked = {"topic": topic, "handle": handle}
                    told = driver.call("producer.recall", id=producer, **asked)
                    assert told["msgId"] == sent["msgId"]
        due = sorted([*named("kept", 5), *named("taken", 2)])
        assert sorted(bodies(driver.pushed(consumer, len(due)))) == due
        assert sorted(bodies(driver.pushed(consumer, len(due) + 1, timeout=1.5))) == due


@pytest.mark.nightly
def test_a_handle_of_another_topic_takes_no_message_back(
    driver: Driver, cluster: Cluster, topic: str
) -> None:
    """SendAndRecallDelayMessageIT.testSendAndRecall_ukCollision."""
    set_option(driver, cluster, "recallMessageEnable", "true")
    set_option(driver, cluster, "appendTopicForTimerDeleteKey", "true")
    other = f"{topic}-other"
    driver.call("admin.createTopic", namesrv=cluster.namesrv, topic=other, broker=cluster.broker)
    with (
        driver.producer(cluster.namesrv) as producer,
        driver.push(cluster.namesrv, topic, group=f"{topic}-group") as consumer,
    ):
        (sent,) = driver.send(producer, topic, setDelayTimeMs=5000)
        version, _, *rest = base64.urlsafe_b64decode(sent["recallHandle"]).decode().split(" ")
        told = recall(driver, producer, other, " ".join([version, other, *rest]))
        assert told == sent["msgId"]
        assert bodies(driver.pushed(consumer, 1, timeout=15)) == named("m", 1)
    set_option(driver, cluster, "appendTopicForTimerDeleteKey", "false")


@pytest.mark.nightly
def test_a_recall_is_traced(driver: Driver, cluster: Cluster, topic: str) -> None:
    """RecallWithTraceIT."""
    set_option(driver, cluster, "recallMessageEnable", "true")
    group, message_id = f"{topic}-producer", "7F00000100002A139A5528D1F1C90000"
    due = round(time.time() * 1000) + 30_000
    handle = f"v1 {topic} {cluster.broker_name} {due} {message_id}"
    with (
        driver.producer(cluster.namesrv, group=group, trace=topic) as producer,
        driver.push(cluster.namesrv, topic, group=f"{topic}-group") as consumer,
    ):
        assert recall(driver, producer, topic, handle) == message_id
        (row,) = driver.pushed(consumer, 1)
    (context,) = driver.call("trace.decode", body=row["body"])["contexts"]
    expected = {"type": "Recall", "group": group, "success": True, "msgId": message_id}
    assert context.items() >= expected.items()


def set_option(driver: Driver, cluster: Cluster, key: str, value: str) -> None:
    """Change an option of the broker."""
    change = f"updateBrokerConfig -b {cluster.broker} -k {key} -v {value}"
    assert "success" in driver.mqadmin(change)


def recall(driver: Driver, producer: str, topic: str, handle: str) -> str:
    """Recall with a handle in clear text; return the id that the broker answers."""
    text = base64.urlsafe_b64encode(handle.encode()).decode()
    told: str = driver.call("producer.recall", id=producer, topic=topic, handle=text)["msgId"]
    return told
