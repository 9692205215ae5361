"""Traces of producers in a namespace: ours are Java's, byte for byte but for ids and times."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any

import pytest

from pyrmq import Message, Producer, PullConsumer, TransactionProducer, TransactionState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyrmq import ReceivedMessage
    from tests.interop.cluster import Cluster
    from tests.interop.driver import Driver

PAIRS = (("ours", "JSON"),)
FROM_5 = True
"""Java's producer of transactions has a trace topic of its own from 5.0 on."""
GROUP = "traced"
FIELD, CONTEXT = "\x01", "\x02"
TIME, LENGTH, COST, OFFSET_ID = 1, 9, 10, 12
POLL_S = 40.0

Ids = dict[str, str]
"""Ids that were assigned, by what stands for them."""


def read(name_server: str, topic: str, contexts: int) -> list[ReceivedMessage]:
    """Read messages of a trace topic until they have this many contexts."""
    found: list[ReceivedMessage] = []
    deadline = time.monotonic() + POLL_S
    with PullConsumer(name_server=name_server, group=f"reads-{topic}") as consumer:
        consumer.assign(dict.fromkeys(consumer.queues(topic), 0))
        while sum(message.body.count(CONTEXT.encode()) for message in found) < contexts:
            assert time.monotonic() < deadline, found
            found += consumer.poll(timeout=0.3)
    return found


def masked(text: str, ids: Ids) -> str:
    """Replace the ids."""
    for name, value in ids.items():
        text = text.replace(value, name)
    return text


def contexts(messages: list[ReceivedMessage], ids: Ids, *, is_javas: bool) -> list[list[str]]:
    """Return the fields of all contexts; ids, times and costs are replaced."""
    text = masked("".join(message.body.decode() for message in messages), ids)
    found = [context.split(FIELD) for context in text.split(CONTEXT)]
    assert found.pop() == [""]
    for fields in found:
        assert abs(int(fields[TIME]) / 1000 - time.time()) < 120
        fields[TIME] = "time"
        if fields[0] == "Pub":
            assert 0 <= int(fields[COST]) < 60_000
            fields[COST] = "cost"
            # Java gives no offset id to the caller of a transaction.
            fields[OFFSET_ID] = re.sub(r"^[0-9A-F]{32}$", "offset id 0", fields[OFFSET_ID])
            if "," in fields[OFFSET_ID]:
                # A batch holds the ids, which are longer where Java finds an IPv6 address, and
                # Java's messages have a property that ours leave out.
                length = sum(len(value) for name, value in ids.items() if name.startswith("id"))
                if is_javas:
                    length += len("WAIT\x01true\x02") * fields[OFFSET_ID].count("offset id")
                fields[LENGTH] = str(int(fields[LENGTH]) - length)
    return found


def keys(messages: list[ReceivedMessage], ids: Ids) -> list[str]:
    """Return the keys by which the traces are found.

    Java has them in the order of a hash set, and all ids of a batch as one key.
    """
    found = [key for message in messages for key in message.keys]
    return sorted({masked(one, ids) for key in found for one in key.split(",")})


def numbered(message_ids: Iterable[str], offset_ids: Iterable[str]) -> Ids:
    """Name ids by their order."""
    ids = {f"id {number}": value for number, value in enumerate(message_ids)}
    ids |= {f"offset id {number}": value for number, value in enumerate(offset_ids)}
    return {name: value for name, value in ids.items() if value}


def java_sends(driver: Driver, where: dict[str, Any], topic: str, what: str) -> Ids:
    """Send with Java's producer."""
    is_transaction = what == "transaction"
    with driver.producer(**where, group=GROUP, transaction=is_transaction or None) as java:
        options: dict[str, object] = {"plain": {}, "batch": {"mode": "batch", "count": 2}}.get(
            what, {"tag": "new", "keys": "order-42 gift"}
        )
        if is_transaction:
            options["mode"] = "transaction"
        (sent,) = driver.send(java, topic, **options)
    return numbered(sent["msgId"].split(","), (sent["offsetMsgId"] or "").split(","))


def we_send(options: dict[str, Any], topic: str, what: str) -> Ids:
    """Send the same messages with our producer."""
    described: dict[str, Any] = {"tags": "new", "keys": ["order-42", "gift"]}
    if what == "transaction":
        commit = lambda _: TransactionState.COMMIT  # noqa: E731
        with TransactionProducer(**options, group=GROUP, check=commit) as transactional:
            half = transactional.send_in_transaction(topic, "m-0", commit, **described).half
        return numbered([half.message_id], [half.offset_message_id])
    with Producer(**options, group=GROUP) as producer:
        if what == "batch":
            results = producer.send_batch(topic, [Message(topic, f"m-{n}") for n in range(2)])
        else:
            results = [producer.send(topic, "m-0", **(described if what == "described" else {}))]
    return numbered((one.message_id for one in results), (one.offset_message_id for one in results))


@pytest.mark.parametrize("what", ["plain", "described", "batch", "transaction"])
def test_traces_in_a_namespace_are_javas_but_for_ids_and_times(
    driver: Driver, cluster: Cluster, name: str, what: str
) -> None:
    topic, namespace = f"Traced{name}", f"ns{name}"
    ours, theirs = f"{name}-ours", f"{name}-theirs"
    where = {"namesrv": cluster.namesrv, "broker": cluster.broker}
    for created in (f"{namespace}%{topic}", ours, theirs):
        driver.call("admin.createTopic", topic=created, queues=1, **where)
    java = {"namesrv": cluster.namesrv, "namespace": namespace, "trace": theirs}
    options = {"name_server": cluster.namesrv, "namespace": namespace, "trace": True}
    ids = {
        theirs: java_sends(driver, java, topic, what),
        ours: we_send({**options, "trace_topic": ours}, topic, what),
    }
    count = 2 if what == "transaction" else 1
    found = {traces: read(cluster.namesrv, traces, count) for traces in ids}
    java_contexts = contexts(found[theirs], ids[theirs], is_javas=True)
    assert contexts(found[ours], ids[ours], is_javas=False) == java_contexts
    assert keys(found[ours], ids[ours]) == keys(found[theirs], ids[theirs])
    assert all(context[3:5] == [GROUP, topic] for context in java_contexts)
