"""A topic that a test creates, fills and reads with raw requests and the reference codec."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from pyrmq._core import Command, Connections
from pyrmq._tables.brokers.remote import RemoteCluster
from pyrmq._tables.options.topic_options import Options
from tests.reference import record as reference

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

Fields: TypeAlias = dict[str, str | int | bool | None]
CREATE_TOPIC, DELETE_TOPIC, SEND, PULL = 17, 215, 10, 11


@dataclass
class Sent:
    """A message to send: body, properties, and how it is stored."""

    body: bytes
    keys: str = ""
    tags: str = ""
    properties: dict[str, str] = field(default_factory=dict)
    flag: int = 0
    sys_flag: int = 0

    def wire(self) -> str:
        """Return the properties in their wire form."""
        pairs = {"KEYS": self.keys, "TAGS": self.tags, **self.properties}
        return "".join(f"{key}\x01{value}\x02" for key, value in pairs.items() if value)


@dataclass
class Topic:
    """One topic of a running cluster."""

    name: str
    name_server: str
    broker: str
    connections: Connections = field(default_factory=Connections)

    def create(self, queues: int = 4, attributes: str = "") -> Topic:
        """Create the topic, or change its number of queues, and wait until it is routable."""
        fields: Fields = {
            "topic": self.name,
            "defaultTopic": "TBW102",
            "readQueueNums": queues,
            "writeQueueNums": queues,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
        }
        if attributes:
            fields["attributes"] = attributes
        self.ask(CREATE_TOPIC, fields)
        options = Options.parse({"nameserver": self.name_server, "topic": self.name}, batch=True)
        deadline = time.monotonic() + 20
        while True:
            cluster = RemoteCluster(options)
            try:
                if len(cluster.snapshot([self.name]).bounds) == queues:
                    return self
            except LookupError:
                pass
            except Exception as error:  # noqa: BLE001 - the route is not there yet
                last: Exception | None = error
            else:
                last = None
            finally:
                cluster.close()
            assert time.monotonic() < deadline, f"topic {self.name} is not routable: {last}"
            time.sleep(0.05)

    def delete(self) -> None:
        """Delete the topic on the broker; the real one without timers deletes it and then fails."""
        self.connections.request(self.broker, Command(DELETE_TOPIC, {"topic": self.name}), 10_000)

    def send(self, queue_id: int, messages: Iterable[Sent | bytes | str]) -> list[int]:
        """Send messages to one queue, one by one, and return their queue offsets."""
        offsets = []
        for one in messages:
            message = (
                one
                if isinstance(one, Sent)
                else Sent(one if isinstance(one, bytes) else one.encode())
            )
            fields = self._sent(queue_id, message)
            offsets.append(int(self.ask(SEND, fields, message.body).fields["queueOffset"]))
        self.await_offset(queue_id, offsets[-1] + 1 if offsets else 0)
        return offsets

    def send_batch(self, queue_id: int, messages: list[Sent]) -> None:
        """Send messages in one request; a topic of batches stores them as one record."""
        body = reference.encode_batch(
            [reference.BatchItem(one.body, one.wire(), one.flag) for one in messages]
        )
        whole = Sent(body, properties={**messages[0].properties, "INNER_NUM": str(len(messages))})
        answer = self.ask(SEND, {**self._sent(queue_id, whole), "batch": True}, body)
        self.await_offset(queue_id, int(answer.fields["queueOffset"]) + len(messages))

    def _sent(self, queue_id: int, message: Sent) -> Fields:
        return {
            "producerGroup": "test",
            "topic": self.name,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": 4,
            "queueId": queue_id,
            "sysFlag": message.sys_flag,
            "bornTimestamp": int(time.time() * 1000),
            "flag": message.flag,
            "properties": message.wire(),
            "reconsumeTimes": 0,
            "unitMode": False,
            "batch": False,
        }

    def await_offset(self, queue_id: int, offset: int) -> None:
        """Wait until a queue ends at `offset`: queues are filled a moment after the log."""
        deadline = time.monotonic() + 20
        fields: Fields = {"topic": self.name, "queueId": queue_id}
        while int(self.ask(30, fields).fields["offset"]) < offset:
            assert time.monotonic() < deadline, f"{self.name}, queue {queue_id}: not at {offset}"
            time.sleep(0.01)

    def broker_name(self) -> str:
        """Return the name under which the broker is routed."""
        options = Options.parse({"nameserver": self.name_server, "topic": self.name}, batch=True)
        cluster = RemoteCluster(options)
        try:
            return next(iter(cluster.snapshot([self.name]).bounds)).broker
        finally:
            cluster.close()

    def records(self, queue_id: int, count: int) -> list[reference.Record]:
        """Pull the first messages of a queue and decode them with the reference codec."""
        records: list[reference.Record] = []
        while len(records) < count:
            fields: Fields = {
                "consumerGroup": "test",
                "topic": self.name,
                "queueId": queue_id,
                "queueOffset": len(records),
                "maxMsgNums": 32,
                "sysFlag": 4,
                "commitOffset": 0,
                "suspendTimeoutMillis": 0,
                "subscription": "*",
                "subVersion": 0,
                "expressionType": "TAG",
            }
            body = self.ask(PULL, fields).body or b""
            records += reference.decode_all(body)
        return records

    def ask(self, code: int, fields: Fields, body: bytes | None = None) -> Command:
        """Send one request to the broker."""
        answer = self.connections.request(self.broker, Command(code, fields, body), 10_000)
        assert answer.code == 0, f"request {code}: {answer.code} {answer.remark}"
        return answer

    def read(self, spark: SparkSession, **options: object) -> DataFrame:
        """Read the topic as a batch."""
        return self.reader(spark, **options).load()

    def reader(self, spark: SparkSession, **options: object) -> DataFrameReader:
        """Return a batch reader of the topic."""
        return spark.read.format("rocketmq").options(**self.options(options))

    def stream(self, spark: SparkSession, **options: object) -> DataStreamReader:
        """Return a stream reader of the topic."""
        return spark.readStream.format("rocketmq").options(**self.options(options))

    def options(self, more: dict[str, object]) -> dict[str, str]:
        """Return the source's options for this topic."""
        given = {"nameServer": self.name_server, "topic": self.name, "timeoutMs": 5000, **more}
        return {name: str(value) for name, value in given.items()}
