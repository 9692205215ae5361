"""A sequence of requests that stores messages of every kind, as reproducible as a sender can.

``play`` sends it over one connection, one request after the other, so that two empty brokers must
store the same bytes. It returns the answers for comparison.
"""

from __future__ import annotations

import json
import socket
import time
import zlib
from contextlib import closing
from itertools import count
from typing import TYPE_CHECKING

from tests.reference import frame as wire
from tests.reference import record as log

if TYPE_CHECKING:
    from pathlib import Path

BORN_MS = 1_700_000_000_000
CREATE_TOPIC = 17
SEND, SEND_V2, SEND_BATCH = 10, 310, 320
SEND_BACK, END_TRANSACTION = 36, 37
COMMIT, ROLLBACK = 8, 12
COMPRESSED_ZLIB = 1
COMPRESSED_ZSTD = 1 | (2 << 8)
PREPARED = 4
GET_MAX_OFFSET = 30
GROUP = "bytes-group"
RETRY = f"%RETRY%{GROUP}"
LONG_GROUP = 200 * "g"
"""Its topics are longer than a signed byte allows: their records have the second magic."""

TOPICS = {"Bytes": 4, "Other": 1, f"%DLQ%{LONG_GROUP}": 1, f"%RETRY%{LONG_GROUP}": 1}

TIMEOUT_S = 20.0


class Sender:
    """One connection that sends requests and waits."""

    def __init__(self, address: str) -> None:
        """Connect."""
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host.strip("[]"), int(port)), TIMEOUT_S)
        self._stream = self._socket.makefile("rb")
        self._numbers = count(1)
        self.answers: list[wire.Frame] = []

    def ask(self, code: int, fields: dict[str, str], body: bytes | None = None) -> wire.Frame:
        """Send a request and wait for the answer, ignoring the broker's own requests."""
        opaque = next(self._numbers)
        one = wire.Frame(code=code, version=513, opaque=opaque, fields=fields, body=body)
        self._socket.sendall(wire.encode(one))
        while True:
            head = self._stream.read(4)
            answer = wire.decode(head + self._stream.read(int.from_bytes(head, "big")))
            if answer.is_response and answer.opaque == opaque:
                self.answers.append(answer)
                return answer

    def await_end(self, topic: str, wanted: int) -> None:
        """Wait until queue 0 of a topic ends there; its queries do not count as answers."""
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            told = self.ask(GET_MAX_OFFSET, {"topic": topic, "queueId": "0"}).fields
            self.answers.pop()
            if told is not None and int(told["offset"]) >= wanted:
                return
            time.sleep(0.02)
        raise TimeoutError(f"{topic} does not end at {wanted} after {TIMEOUT_S} s")

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
        self._socket.close()


def text(pairs: dict[str, str]) -> str:
    """Write properties in their wire form."""
    return "".join(f"{key}\x01{value}\x02" for key, value in pairs.items())


def key(number: int) -> str:
    """Return a unique id in the clients' form."""
    return f"7F0000010001{number:020X}"


def send(
    sender: Sender,
    topic: str,
    body: bytes,
    properties: dict[str, str] | str = "",
    *,
    code: int = SEND_V2,
    queue: int = 0,
    flag: int = 0,
    sys_flag: int = 0,
    reconsume_times: int = 0,
    batch: bool = False,
    born_ms: int = BORN_MS,
) -> wire.Frame:
    """Send one message, or one batch."""
    values = {
        "producerGroup": GROUP,
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": str(queue),
        "sysFlag": str(sys_flag),
        "bornTimestamp": str(born_ms),
        "flag": str(flag),
        "properties": properties if isinstance(properties, str) else text(properties),
        "reconsumeTimes": str(reconsume_times),
        "unitMode": "false",
        "maxReconsumeTimes": "16",
        "batch": "true" if batch else "false",
    }
    if code != SEND:
        values = dict(zip("abcdefghijklm", values.values(), strict=True))
    return sender.ask(code, values, body)


def write_groups(config: Path) -> None:
    """Write a group whose name newer brokers refuse, as an older one left it."""
    config.mkdir(parents=True)
    table = {
        "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": BORN_MS},
        "subscriptionGroupTable": {
            LONG_GROUP: {"groupName": LONG_GROUP, "retryMaxTimes": 16, "retryQueueNums": 1}
        },
    }
    (config / "subscriptionGroup.json").write_text(json.dumps(table))


def create_topics(sender: Sender) -> None:
    """Create the topics of the sequence."""
    for topic, queues in TOPICS.items():
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        assert sender.ask(CREATE_TOPIC, fields).code == 0


def singles(sender: Sender) -> None:
    """Both header forms, all queues, flags, keys, tags, odd text, limits."""
    ids = count(1)
    for number in range(8):
        own = {"UNIQ_KEY": key(next(ids)), "WAIT": "true"}
        code = SEND if number % 2 else SEND_V2
        send(sender, "Bytes", b"plain %d" % number, own, code=code, queue=number % 4)
    for pairs in (
        {"TAGS": "Red"},
        {"TAGS": "größer", "KEYS": "one two  three one"},
        {"KEYS": " edge ", "own": "a=b;c", "другой": "знак"},
        {"TAGS": "x", "TRACE_ON": "false", "MSG_REGION": "Elsewhere", "CLUSTER": "Other"},
        {"WAIT": "false", "__SHARDINGKEY": "s", "BUYER_ID": "b", "INSTANCE_ID": "i"},
        {"TAGS": "with space", "KEYS": "k" * 300},
    ):
        send(sender, "Bytes", b"with properties", {**pairs, "UNIQ_KEY": key(next(ids))}, flag=7)
    unique = key(next(ids))
    for raw in (
        f"UNIQ_KEY\x01{unique}",
        f"UNIQ_KEY\x01{unique}\x02TAGS\x01a\x02TAGS\x01b\x02",
        f"UNIQ_KEY\x01{unique}\x02empty\x01\x02\x01value\x02nothing\x02\x02KEYS\x01k\x02",
        f"\x02UNIQ_KEY\x01{unique}\x02two\x01sep\x01arators\x02",
    ):
        send(sender, "Bytes", b"odd text", raw, queue=1)
    for size in (32_767, 32_766, 32_700, 32_600, 20_000):
        unique = key(next(ids))
        long = "p" * (size - len(text({"UNIQ_KEY": unique, "long": ""})))
        send(sender, "Bytes", b"long properties", {"UNIQ_KEY": unique, "long": long}, queue=2)
    for body in (b"1", b"\0" * 1000, b"n" * 40_000, bytes(range(256)) * 100):
        send(sender, "Other", body, {"UNIQ_KEY": key(next(ids))})
    packed = zlib.compress(b"much of the same " * 500)
    for bits in (COMPRESSED_ZLIB, COMPRESSED_ZLIB | (3 << 8)):
        send(sender, "Other", packed, {"UNIQ_KEY": key(next(ids))}, sys_flag=bits)
    zstd = b"\x28\xb5\x2f\xfd\x20\x01\x09\x00\x00x"
    send(sender, "Other", zstd, {"UNIQ_KEY": key(next(ids))}, sys_flag=COMPRESSED_ZSTD)


def batches(sender: Sender) -> None:
    """Batches by both codes, with and without tags and keys in their messages."""
    items = [
        log.BatchItem(b"item %d" % number, text({"UNIQ_KEY": key(5000 + number), **pairs}), number)
        for number, pairs in enumerate(
            ({}, {"TAGS": "A"}, {"TAGS": "B", "KEYS": "x y"}, {"WAIT": "true"}, {"a": "b"})
        )
    ]
    outer = {"UNIQ_KEY": key(5000), "WAIT": "true"}
    send(sender, "Bytes", log.encode_batch(items), outer, code=SEND_BATCH, queue=3, batch=True)
    send(sender, "Bytes", log.encode_batch(items[:1]), outer, code=SEND_BATCH, batch=True)
    send(sender, "Other", log.encode_batch(items), outer, batch=True, flag=3)
    bare = [log.BatchItem(b"without properties"), log.BatchItem(b"", text({"TAGS": "A"}))]
    send(sender, "Other", log.encode_batch(bare), "", code=SEND_BATCH, batch=True)


def delays(sender: Sender) -> None:
    """Delay levels that are not due while the test runs, one above the last, and retries."""
    for level in ("16", "18", "99"):
        pairs = {"UNIQ_KEY": key(6000 + int(level)), "DELAY": level, "TAGS": "later", "KEYS": "d"}
        send(sender, "Bytes", b"later", pairs, queue=2)
    for offset, delay, group in ((0, 18, GROUP), (1, 18, GROUP), (0, -1, GROUP), (0, 1, "h" * 200)):
        asked = {
            "offset": str(offset),
            "group": group,
            "delayLevel": str(delay),
            "originMsgId": "7F00000100002A9F0000000000000000",
            "originTopic": "Bytes",
            "unitMode": "false",
            "maxReconsumeTimes": "16",
        }
        sender.ask(SEND_BACK, asked)
    pairs = {"UNIQ_KEY": key(6500), "RETRY_TOPIC": "Bytes", "DELAY": "17"}
    send(sender, RETRY, b"back", pairs, code=SEND, reconsume_times=2)
    send(sender, RETRY, b"dead", pairs, code=SEND, reconsume_times=17)
    long = {"UNIQ_KEY": key(6501), "TAGS": "long", "KEYS": "l"}
    for topic in (f"%DLQ%{LONG_GROUP}", f"%RETRY%{LONG_GROUP}"):
        send(sender, topic, b"a topic with a long name", long)


def transactions(sender: Sender, born_ms: int) -> None:
    """Commit one, roll one back, leave one open."""
    ends = []
    for number in range(3):
        unique = key(7000 + number)
        pairs = {"UNIQ_KEY": unique, "TRAN_MSG": "true", "PGROUP": GROUP, "TAGS": "T", "KEYS": "t"}
        body = b"half %d" % number
        answer = send(sender, "Bytes", body, pairs, queue=1, sys_flag=PREPARED, born_ms=born_ms)
        told = answer.fields or {}
        ends.append(
            {
                "producerGroup": GROUP,
                "tranStateTableOffset": told["queueOffset"],
                "commitLogOffset": str(int(told["msgId"][-16:], 16)),
                "fromTransactionCheck": "false",
                "msgId": unique,
                "transactionId": unique,
            }
        )
    for done, how in enumerate((COMMIT, ROLLBACK), start=1):
        sender.ask(END_TRANSACTION, {**ends[done - 1], "commitOrRollback": str(how)})
        sender.await_end("RMQ_SYS_TRANS_OP_HALF_TOPIC", done)


def play(address: str, born_ms: int, address_v6: str) -> list[wire.Frame]:
    """Send everything; return the answers in order.

    Args:
        address: the broker.
        born_ms: born time of the half messages, which must be recent; others have ``BORN_MS``.
        address_v6: the broker's address in IPv6, for one message from there.
    """
    with closing(Sender(address)) as sender:
        create_topics(sender)
        singles(sender)
        batches(sender)
        delays(sender)
        transactions(sender, born_ms)
        answers = sender.answers
        with closing(Sender(address_v6)) as other:
            send(other, "Other", b"from afar", {"UNIQ_KEY": key(8000)})
            answers += other.answers
        # The id that the broker creates, and so the length of its record, depends on the machine.
        send(sender, "Bytes", b"no unique key", {"TAGS": "x"}, queue=3)
        return answers
