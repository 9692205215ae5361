"""The recorder's scenario for the real client: each call of producer, consumer and mqadmin once."""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.interop.driver import Driver, DriverError

if TYPE_CHECKING:
    from collections.abc import Callable

ADMIN_COMMANDS = (
    *(
        "clusterList",
        "clusterList -m",
        "topicList",
        "topicList -c",
        "topicRoute -t {topic}",
        "topicStatus -t {topic}",
    ),
    *(
        "topicClusterList -t {topic}",
        "statsAll -t {topic}",
        "updateTopicPerm -c {cluster} -t {topic} -p 6",
    ),
    *(
        "updateTopic -c {cluster} -t FromAdmin -r 3 -w 3",
        "updateTopic -b {broker} -t FromAdminToo -r 1 -w 1",
    ),
    *("updateSubGroup -c {cluster} -g MadeByAdmin", "deleteSubGroup -c {cluster} -g MadeByAdmin"),
    *(
        "consumerProgress",
        "consumerProgress -g {group}",
        "consumerConnection -g {group}",
        "consumerStatus -g {group}",
    ),
    *(
        "producerConnection -g recorded-producer -t {topic}",
        "brokerStatus -b {broker}",
        "brokerConsumeStats -b {broker}",
    ),
    *(
        "queryMsgByKey -t {topic} -k key-1",
        "queryMsgByUniqueKey -t {topic} -i {unique}",
        "queryMsgById -i {offset_id}",
    ),
    *("queryMsgById -t {topic} -i {offset_id}", "queryMsgByOffset -t {topic} -b {name} -i 0 -o 0"),
    *("printMsg -t {topic} -d true", "queryCq -b {broker} -t {topic} -q 0 -i 0 -c 3 -g {group}"),
    *("sendMessage -t {topic} -p hello -k admin -c TagZ", "checkMsgSendRT -t {topic} -a 2 -s 16"),
    *(
        "resetOffsetByTime -g {group} -t {topic} -s now",
        "resetOffsetByTime -g offline -t {topic} -s 0",
    ),
    *(
        "cloneGroupOffset -s {group} -d cloned -t {topic} -o false",
        "allocateMQ -t {topic} -i 10.0.0.1,10.0.0.2",
    ),
    *("updateOrderConf -t {topic} -m put -v {name}:4", "updateOrderConf -t {topic} -m get"),
    *(
        "updateOrderConf -t {topic} -m delete",
        "updateKvConfig -s ns -k a -v b",
        "deleteKvConfig -s ns -k a",
    ),
    *(
        "updateBrokerConfig -b {broker} -k flushConsumeQueueThoroughInterval -v 60000",
        "getBrokerConfig -b {broker}",
    ),
    *(
        "wipeWritePerm -b {name}",
        "addWritePerm -b {name}",
        "cleanExpiredCQ -b {broker}",
        "cleanUnusedTopic -b {broker}",
    ),
    *(
        "setConsumeMode -c {cluster} -t {topic} -g popping -m POP -q 1",
        "getConsumerConfig -g {group}",
    ),
    *(
        "haStatus -b {broker}",
        "producer -b {broker}",
        "getNamesrvConfig",
        "updateNamesrvConfig -k testKey -v 1",
    ),
    *("deleteTopic -c {cluster} -t FromAdmin",),
)
"""mqadmin commands; if a version lacks one, it prints that and changes nothing."""


@dataclass(frozen=True)
class Place:
    """The scenario's addresses, as the clients see them."""

    driver: Driver
    namesrv: str
    broker: str
    broker_name: str
    cluster: str
    note: Callable[[str], None]
    through: Callable[[str], str]
    """Changes an offset id so that it leads through the proxy."""


def run(place: Place) -> None:
    """Do everything once. Only deliberate failures may happen."""
    sends(place)
    consumes(place)
    queries(place)
    transactions(place)
    replies(place)
    errors(place)
    pops(place)
    administration(place)


def sends(place: Place) -> None:
    """Every way of sending."""
    driver, note = place.driver, place.note
    note("create topic")
    for topic in ("Recorded", "Ordered"):
        driver.call("admin.createTopic", namesrv=place.namesrv, topic=topic, broker=place.broker)
    with driver.producer(place.namesrv, group="recorded-producer") as producer:
        for mode in ("sync", "async", "oneway", "batch"):
            note(f"send {mode}")
            driver.send(producer, "Recorded", mode=mode, count=2)
            note(f"send {mode} with key, tag and properties")
            driver.send(
                producer,
                "Recorded",
                mode=mode,
                count=3,
                key="key-",
                tag="TagA",
                prop__colour="blau",
                prop__größe="6 €",
            )
        note("send with a flag, without waiting for the store")
        driver.send(producer, "Recorded", flag=7, wait=False)
        note("send a compressed body")
        driver.send(producer, "Recorded", size=20_000, key="big-")
        note("send with delay level 1")
        driver.send(producer, "Recorded", delay=1, prefix="late")
        note("send ordered by selector")
        driver.send(producer, "Ordered", count=6, shards=2, key="order-")
        note("send to a topic that is created by the send")
        driver.send(producer, "MadeBySend", count=1)
    for kind in ("LZ4", "ZSTD"):
        if driver.version.startswith("5"):
            note(f"send a body compressed by {kind}")
            with driver.producer(place.namesrv, group="compressing", compressType=kind) as producer:
                driver.send(producer, "Recorded", size=20_000, key=f"{kind}-")


def consumes(place: Place) -> None:
    """Every way of consuming."""
    driver, note, names = place.driver, place.note, place.namesrv
    note("push, concurrent, each message refused once")
    with driver.push(names, "Recorded", group="refusing", later=True) as consumer:
        driver.pushed(consumer, 24, timeout=12)
    note("push, orderly")
    with driver.push(names, "Ordered", group="orderly", orderly=True) as consumer:
        driver.pushed(consumer, 6)
    note("push, by tag")
    with driver.push(names, "Recorded", group="tagged", expression="TagA || TagB") as consumer:
        driver.pushed(consumer, 12)
    note("push, by SQL92")
    with driver.push(names, "Recorded", group="sql", sql="colour = 'blau'") as consumer:
        driver.pushed(consumer, 12)
    note("push, broadcast")
    with driver.push(names, "Recorded", group="broadcast", broadcast=True) as consumer:
        driver.pushed(consumer, 20)
    note("pull with the old pull consumer")
    with driver.pull(names, group="puller") as consumer:
        driver.call("pull.pull", id=consumer, topic="Recorded", commit=True, most=2)
        note("pull past the end")
        driver.call("pull.pull", id=consumer, topic="Recorded", offset=1000)
        note("pull before the beginning, by tag that is not there")
        driver.call("pull.pull", id=consumer, topic="Ordered", offset=0, expression="NoSuchTag")
        note("read committed offsets")
        driver.call("pull.committed", id=consumer, topic="Recorded")
    note("pull with the lite pull consumer, assigned")
    with driver.lite(names, "Recorded", group="lite-assign") as consumer:
        driver.call("lite.poll", id=consumer, count=10, commit=True, timeout=5000)
    note("pull with the lite pull consumer, subscribed")
    with driver.lite(names, "Recorded", group="lite-subscribe", mode="subscribe") as consumer:
        driver.call("lite.poll", id=consumer, count=10, commit=True, timeout=5000)


def queries(place: Place) -> None:
    """Queries by key, id and time."""
    driver, note, names = place.driver, place.note, place.namesrv
    with driver.producer(names, group="recorded-producer") as producer:
        sent = driver.send(producer, "Recorded", key="view-")[0]
    note("query by key")
    driver.call("admin.queryKey", namesrv=names, topic="Recorded", key="key-1")
    note("query by a key that is not there")
    with contextlib.suppress(DriverError):
        driver.call("admin.queryKey", namesrv=names, topic="Recorded", key="no-such-key")
    note("view by offset id")
    driver.call(
        "admin.view", namesrv=names, topic="Recorded", msgId=place.through(sent["offsetMsgId"])
    )
    note("view by unique id")
    driver.call("admin.view", namesrv=names, topic="Recorded", msgId=sent["msgId"])
    note("smallest, largest and searched offset")
    now = int(time.time() * 1000)
    driver.call(
        "admin.offsets",
        namesrv=names,
        topic="Recorded",
        brokerName=place.broker_name,
        queue=0,
        time=now,
    )


def transactions(place: Place) -> None:
    """Transactions committed, rolled back and checked."""
    driver, note, names = place.driver, place.note, place.namesrv
    for state in ("commit", "rollback", "unknown"):
        note(f"transaction: {state}")
        options = {"transaction": True, "local": state}
        with driver.producer(names, group=f"transaction-{state}", **options) as producer:
            driver.send(producer, "Recorded", mode="transaction", key=f"{state}-")
            if state != "unknown":
                continue
            note("transaction: checked by the broker")
            end = time.monotonic() + 20
            while time.monotonic() < end:
                answer = driver.call(
                    "producer.send", id=producer, topic="Recorded", mode="oneway", count=0
                )
                if answer["checks"]:
                    break


def replies(place: Place) -> None:
    """Request and reply through the broker."""
    driver, names = place.driver, place.namesrv
    place.note("request and reply")
    driver.call("admin.createTopic", namesrv=names, topic="Asked", broker=place.broker)
    with (
        driver.producer(names, group="replying") as replier,
        driver.push(names, "Asked", group="answering", replier=replier, **{"from": "LAST_OFFSET"}),
        driver.producer(names, group="asking") as producer,
    ):
        for attempt in range(3):
            with contextlib.suppress(DriverError):
                driver.call(
                    "producer.request", id=producer, topic="Asked", key="question-", start=attempt
                )
                return
    raise AssertionError("no reply came")


def errors(place: Place) -> None:
    """Requests that the servers refuse."""
    driver, note, names = place.driver, place.note, place.namesrv
    with driver.producer(names, group="recorded-producer", retries=0, timeout=3000) as producer:
        note("refused: queue that does not exist")
        with contextlib.suppress(DriverError):
            driver.send(producer, "Recorded", queue=99, broker=place.broker_name)
        note("refused: topic without read permission")
        driver.call("admin.createTopic", namesrv=names, topic="Closed", broker=place.broker, perm=4)
        with contextlib.suppress(DriverError):
            driver.send(producer, "Closed", queue=0, broker=place.broker_name)
    note("refused: view of a message that is not there")
    with contextlib.suppress(DriverError):
        gone = place.through("7F000001000000000000000000FFFFFF")
        driver.call("admin.view", namesrv=names, topic="Recorded", msgId=gone)


def pops(place: Place) -> None:
    """The POP consumer, which 5.x has."""
    driver = place.driver
    if not driver.version.startswith("5") or driver.serialize != "JSON":
        return
    place.note("push by POP")
    driver.mqadmin(
        f"setConsumeMode -n {place.namesrv} -c {place.cluster} -t Ordered -g popped -m POP -q 1"
    )
    with driver.push(place.namesrv, "Ordered", group="popped", pop=True) as consumer:
        driver.pushed(consumer, 6, timeout=15)


def administration(place: Place) -> None:
    """Every mqadmin command of the list."""
    driver, names = place.driver, place.namesrv
    with (
        driver.producer(names, group="recorded-producer") as producer,
        driver.push(names, "Recorded", group="watched") as consumer,
    ):
        sent = driver.send(producer, "Recorded", key="key-1")[0]
        driver.pushed(consumer, 5)
        values = {
            "topic": "Recorded",
            "cluster": place.cluster,
            "broker": place.broker,
            "name": place.broker_name,
            "group": "watched",
            "unique": sent["msgId"],
            "offset_id": place.through(sent["offsetMsgId"]),
        }
        for template in ADMIN_COMMANDS:
            words = template.format(**values).split()
            place.note("mqadmin " + re.sub(r"\{(\w+)\}", r"\1", template))
            driver.mqadmin([words[0], "-n", names, *words[1:]])
