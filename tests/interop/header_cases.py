"""Requests with one header field missing, empty or of another type, for any server.

`CASES` has one complete request for every request code with a header that our servers answer.
`play` sends it unchanged, then with each of its fields changed, and returns the answers.
`tests/interop/record_headers.py` records the real servers' answers in `tests/golden/headers.json`;
`tests/e2e/test_headers.py` compares ours with them.

Texts in braces stand for objects that a server must already have (`PLACES`), or for a name that no
other request uses (`{new}`).
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyrmq.codes import RequestCode
from tests.e2e.wire import Connection

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TIMEOUT_S = 1.0
NUMBER, FLAG, TEXT = "number", "flag", "text"
WRONG = {NUMBER: "x1", FLAG: "maybe", TEXT: "  "}
"""The changed value of a field of each kind: no number, no boolean, blanks."""

Answer = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A complete request.

    Attributes:
        code: its request code.
        fields: its header.
        body: its body; None for none.
        look: a request sent afterwards, whose answer shows what this one changed.
    """

    code: int
    fields: Mapping[str, str]
    body: bytes | None = None
    look: tuple[int, Mapping[str, str]] | None = None


def kind_of(value: str) -> str:
    """Return a field's type from its value in the complete request."""
    if value in ("true", "false"):
        return FLAG
    return NUMBER if re.fullmatch(r"-?\d+", value) or value == "{offset}" else TEXT


def variants(case: Case) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield the complete request, then with each field missing, empty and wrong, then with none."""
    yield "", "whole", dict(case.fields)
    for name, value in case.fields.items():
        yield name, "missing", {key: v for key, v in case.fields.items() if key != name}
        yield name, "empty", {**case.fields, name: ""}
        yield name, "wrong", {**case.fields, name: WRONG[kind_of(value)]}
    yield "", "no field", {}


_REGISTRATION = json.dumps(
    {
        "filterServerList": [],
        "topicConfigSerializeWrapper": {
            "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 1_700_000_000_000},
            "topicConfigTable": {
                name: {
                    "order": False,
                    "perm": 6,
                    "readQueueNums": 4,
                    "topicFilterType": "SINGLE_TAG",
                    "topicName": name,
                    "topicSysFlag": 0,
                    "writeQueueNums": 4,
                }
                for name in ("Known", "AlsoKnown")
            },
        },
    },
    separators=(",", ":"),
).encode()
_CHECK = str(zlib.crc32(_REGISTRATION) & 0x7FFF_FFFF)
_BROKER = {"brokerName": "{new}", "brokerAddr": "10.9.9.9:{port}", "clusterName": "Probed"}
_CLUSTERS: tuple[int, dict[str, str]] = (RequestCode.GET_BROKER_CLUSTER_INFO, {})
_VALUE = (RequestCode.GET_KV_CONFIG, {"namespace": "{new}", "key": "k"})

NAME_SERVER = (
    Case(
        RequestCode.REGISTER_BROKER,
        {
            **_BROKER,
            "haServerAddr": "10.9.9.9:1",
            "brokerId": "0",
            "heartbeatTimeoutMillis": "120000",
            "enableActingMaster": "false",
            "compressed": "false",
            "bodyCrc32": _CHECK,
        },
        _REGISTRATION,
        _CLUSTERS,
    ),
    Case(RequestCode.UNREGISTER_BROKER, {**_BROKER, "brokerId": "0"}),
    Case(
        RequestCode.QUERY_DATA_VERSION,
        {**_BROKER, "brokerId": "0"},
        b'{"counter":1,"stateVersion":0,"timestamp":1}',
    ),
    Case(
        RequestCode.BROKER_HEARTBEAT,
        {
            **_BROKER,
            "brokerId": "0",
            "epoch": "1",
            "maxOffset": "1",
            "confirmOffset": "1",
            "heartbeatTimeoutMills": "10000",
            "electionPriority": "1",
        },
    ),
    Case(RequestCode.GET_BROKER_MEMBER_GROUP, {"clusterName": "Probed", "brokerName": "known"}),
    Case(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "Known", "acceptStandardJsonOnly": "true"}),
    Case(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "NotKnown"}),
    Case(RequestCode.PUT_KV_CONFIG, {"namespace": "{new}", "key": "k", "value": "v"}, None, _VALUE),
    Case(RequestCode.GET_KV_CONFIG, {"namespace": "Probed", "key": "k"}),
    Case(RequestCode.DELETE_KV_CONFIG, {"namespace": "{new}", "key": "k"}),
    Case(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "Probed"}),
    Case(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "known"}),
    Case(RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "known"}),
    Case(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "Probed"}),
    Case(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "{new}", "clusterName": "Probed"}),
    Case(
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        {"topic": "{new}"},
        b'{"brokerDatas":[],"queueDatas":[{"brokerName":"known","perm":6,"readQueueNums":1,'
        b'"topicSysFlag":0,"writeQueueNums":1}]}',
    ),
    Case(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}),
    Case(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, {}),
    Case(RequestCode.GET_UNIT_TOPIC_LIST, {}),
    Case(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, {}),
    Case(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, {}),
    Case(RequestCode.GET_BROKER_CLUSTER_INFO, {}),
    Case(RequestCode.UPDATE_NAMESRV_CONFIG, {}, b""),
    Case(RequestCode.UPDATE_NAMESRV_CONFIG, {}, None),
    Case(RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"enableTopicList=true\nenableAllTopicList=true\n"),
    Case(RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"scanNotActiveBrokerInterval=soon\n"),
    Case(
        RequestCode.UPDATE_NAMESRV_CONFIG,
        {},
        b"scanNotActiveBrokerInterval=soon\nenableTopicList=true\n",
    ),
    Case(RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"waitSecondsForService=45.5\n"),
    Case(RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"enableTopicList=maybe\n"),
    Case(RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"enableTopicList=\n"),
    Case(RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"enableTopicList=true\n"),
    Case(RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"nobodyReadsThis=1\n"),
    Case(RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"no pair at all"),
    Case(RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"kvConfigPath=/nowhere\n"),
    Case(RequestCode.UPDATE_NAMESRV_CONFIG, {}, b"productEnvName=east\nlistenPort=1\n"),
)
"""The requests to a name server, in this order."""

_SEND = {
    "producerGroup": "Senders",
    "topic": "Probed",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "0",
    "sysFlag": "0",
    "bornTimestamp": "1700000000000",
    "flag": "0",
    "properties": "KEYS\x01k\x02",
    "reconsumeTimes": "0",
    "unitMode": "false",
    "maxReconsumeTimes": "16",
    "batch": "false",
}
_SHORT = dict(zip("abcdefghijklm", _SEND.values(), strict=True))
_PULL = {
    "consumerGroup": "Readers",
    "topic": "Probed",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "1",
    "subscription": "*",
    "subVersion": "0",
    "expressionType": "TAG",
}
_QUEUE = {"topic": "Probed", "queueId": "0"}
_GROUP_QUEUE = {"consumerGroup": "Readers", **_QUEUE}
_NEW_TOPIC = {
    "topic": "{new}",
    "defaultTopic": "TBW102",
    "readQueueNums": "1",
    "writeQueueNums": "1",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
    "attributes": "",
}
_POP_QUEUE = {"consumerGroup": "Poppers", "topic": "Popped", "queueId": "0"}
_POPPED = {**_POP_QUEUE, "extraInfo": "{handle}", "offset": "0"}
_POPS = 64
"""Messages to pop: the table's pops take at most one each."""
_LOOK_TOPIC = (RequestCode.GET_TOPIC_CONFIG, {"topic": "{new}"})
_ONE_OF_BATCH = struct.pack(">iIIii", 23, 0, 0, 0, 1) + b"x" + struct.pack(">h", 0)

BROKER = (
    Case(RequestCode.SEND_MESSAGE, _SEND, b"x"),
    Case(RequestCode.SEND_MESSAGE_V2, {**_SHORT, "n": "broker-a"}, b"x"),
    Case(RequestCode.SEND_BATCH_MESSAGE, {**_SHORT, "m": "true"}, _ONE_OF_BATCH),
    Case(RequestCode.PULL_MESSAGE, _PULL),
    Case(RequestCode.LITE_PULL_MESSAGE, _PULL),
    Case(
        RequestCode.QUERY_MESSAGE,
        {
            "topic": "Probed",
            "key": "k",
            "maxNum": "8",
            "beginTimestamp": "0",
            "endTimestamp": "9000000000000",
        },
    ),
    Case(RequestCode.QUERY_CONSUMER_OFFSET, _GROUP_QUEUE),
    Case(RequestCode.UPDATE_CONSUMER_OFFSET, {**_GROUP_QUEUE, "commitOffset": "0"}),
    Case(RequestCode.UPDATE_AND_CREATE_TOPIC, _NEW_TOPIC, None, _LOOK_TOPIC),
    Case(
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        {**_QUEUE, "timestamp": "0", "boundaryType": "LOWER"},
    ),
    Case(RequestCode.GET_MAX_OFFSET, {**_QUEUE, "committed": "true"}),
    Case(RequestCode.GET_MIN_OFFSET, _QUEUE),
    Case(RequestCode.GET_EARLIEST_MSG_STORETIME, _QUEUE),
    Case(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "{offset}"}),
    Case(
        RequestCode.UNREGISTER_CLIENT,
        {"clientID": "nobody", "producerGroup": "Nobody", "consumerGroup": "Nobody"},
    ),
    Case(
        RequestCode.CONSUMER_SEND_MSG_BACK,
        {
            "offset": "{offset}",
            "group": "Readers",
            "delayLevel": "3",
            "originMsgId": "id",
            "originTopic": "Probed",
            "unitMode": "false",
            "maxReconsumeTimes": "16",
        },
    ),
    Case(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "Live"}),
    Case(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "Probed"}),
    Case(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "Live"}),
    Case(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "LiveSenders"}),
    Case(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "{new}", "cleanOffset": "false"}),
    Case(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "Readers", "topic": "Probed"}),
    Case(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "{new}"}),
    Case(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        {
            "topic": "Probed",
            "group": "Readers",
            "timestamp": "0",
            "isForce": "true",
            "queueId": "0",
            "offset": "0",
        },
    ),
    Case(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "Probed"}),
    Case(RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": "Probed", "group": "Readers"}),
    Case(RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "Readers"}),
    Case(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, {"group": "Live", "topic": "Probed"}),
    Case(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": "{message}", "topic": "Probed"}),
    Case(RequestCode.GET_TOPIC_CONFIG, {"topic": "Probed"}),
    Case(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "Readers"}),
    Case(
        RequestCode.RECALL_MESSAGE,
        {"producerGroup": "Senders", "topic": "Probed", "recallHandle": "x"},
    ),
    Case(
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
        {"group": "Readers", "topic": "Probed", "readable": "true"},
    ),
    Case(
        RequestCode.CLONE_GROUP_OFFSET,
        {"srcGroup": "Readers", "destGroup": "Copies", "topic": "Probed", "offline": "true"},
    ),
    Case(RequestCode.RESET_MASTER_FLUSH_OFFSET, {"masterFlushOffset": "0"}),
    Case(
        RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        {"topic": "Probed", "group": "Readers", "clientAddr": "10.9.9.9:1"},
    ),
    Case(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, {}),
    Case(
        RequestCode.QUERY_CORRECTION_OFFSET,
        {"topic": "Probed", "compareGroup": "Readers", "filterGroups": "Live"},
    ),
    Case(
        RequestCode.VIEW_BROKER_STATS_DATA,
        {"statsName": "TOPIC_PUT_NUMS", "statsKey": "Probed"},
    ),
    Case(RequestCode.CLEAN_UNUSED_TOPIC, {}),
    Case(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}),
    Case(
        RequestCode.QUERY_CONSUME_QUEUE,
        {**_QUEUE, "index": "0", "count": "1", "consumerGroup": "Live"},
    ),
    Case(RequestCode.GET_BROKER_HA_STATUS, {}),
    Case(RequestCode.PEEK_MESSAGE, {**_POP_QUEUE, "maxMsgNums": "1"}),
    Case(
        RequestCode.NOTIFICATION,
        {
            **_POP_QUEUE,
            "pollTime": "0",
            "bornTime": "0",
            "order": "false",
            "attemptId": "a",
            "expType": "TAG",
            "exp": "*",
        },
    ),
    Case(
        RequestCode.POP_MESSAGE,
        {
            **_POP_QUEUE,
            "maxMsgNums": "1",
            "invisibleTime": "60000",
            "pollTime": "0",
            "bornTime": "0",
            "initMode": "0",
            "order": "false",
            "attemptId": "a",
            "expType": "TAG",
            # Last: no message has a tag of blanks, so a pop for it passes over all that are left.
            "exp": "*",
        },
    ),
    Case(RequestCode.POLLING_INFO, _POP_QUEUE),
    Case(RequestCode.ACK_MESSAGE, _POPPED),
    Case(
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        {**_POPPED, "invisibleTime": "60000", "suspend": "false"},
    ),
    Case(
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        {"consumerGroup": "Readers", "clientId": "nobody", "jstackEnable": "false"},
    ),
    Case(
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
        {
            "consumerGroup": "Readers",
            "clientId": "nobody",
            "msgId": "{message}",
            "brokerName": "broker-a",
        },
    ),
)
"""The requests to a broker, in this order."""

CASES = {"namesrv": NAME_SERVER, "broker": BROKER}


class Probe:
    """One server under test.

    Args:
        kind: `namesrv` or `broker`.
        address: `host:port`.
    """

    def __init__(self, kind: str, address: str) -> None:
        self.kind = kind
        self._address = address
        self._places: dict[str, str] = {}
        self._kept: list[Connection] = []
        self._connection = Connection(address)
        self._count = 0

    def close(self) -> None:
        """Close its connections."""
        for connection in (self._connection, *self._kept):
            connection.close()

    def _ask(self, code: int, fields: Mapping[str, str], body: bytes | None = None) -> Answer:
        try:
            answer = self._connection.ask(code, fields, body, timeout=TIMEOUT_S)
        except (ConnectionError, TimeoutError) as error:
            self._connection.close()
            self._connection = Connection(self._address)
            silent = isinstance(error, TimeoutError)
            return {"code": None, "remark": "no answer" if silent else "closed"}
        remark = None if answer.remark is None else self._plain(answer.remark)
        return {
            "code": answer.code,
            "remark": remark,
            "fields": sorted(answer.fields),
            "body": answer.body is not None,
        }

    def _look(self, code: int, fields: Mapping[str, str]) -> Answer:
        """Return what a request changed: the code, and whether the body names the new object."""
        try:
            seen = self._connection.ask(code, fields, timeout=TIMEOUT_S)
        except TimeoutError:
            return {"code": None}
        named = self._places["new"].encode() in (seen.body or b"")
        return {"code": seen.code, "named": named, "fields": sorted(seen.fields)}

    def _plain(self, text: str) -> str:
        """Return a remark without the parts that differ from run to run."""
        text = re.sub(r"P\d+Q", "{new}", text)
        text = re.sub(r"/?\d+\.\d+\.\d+\.\d+:\d+", "{address}", text)
        return text.partition("\n")[0][:100]

    def _fill(self, value: str) -> str:
        for name, text in self._places.items():
            value = value.replace(f"{{{name}}}", text)
        return value

    def prepare(self) -> None:
        """Create the objects that the requests name."""
        if self.kind == "namesrv":
            keeps = Connection(self._address)
            self._kept.append(keeps)
            whole = {**NAME_SERVER[0].fields, "brokerName": "known", "brokerAddr": "10.9.9.8:1"}
            answer = keeps.ask(RequestCode.REGISTER_BROKER, whole, _REGISTRATION)
            assert answer.code == 0, answer.remark
            value = {"namespace": "Probed", "key": "k", "value": "v"}
            assert self._ask(RequestCode.PUT_KV_CONFIG, value)["code"] == 0
            return
        new = {**_NEW_TOPIC, "topic": "Probed", "readQueueNums": "4", "writeQueueNums": "4"}
        assert self._ask(RequestCode.UPDATE_AND_CREATE_TOPIC, new)["code"] == 0
        for group in ("Readers", "Live", "Poppers"):
            body = json.dumps({"groupName": group}).encode()
            made = self._ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
            assert made["code"] == 0, made
        sent = self._connection.ask(RequestCode.SEND_MESSAGE, _SEND, b"x")
        assert sent.code == 0, sent.remark
        self._places["message"] = sent.fields["msgId"]
        self._places["offset"] = str(int(sent.fields["msgId"][16:], 16))
        self._pop()
        heart = Connection(self._address)
        self._kept.append(heart)
        subscription = {"topic": "Probed", "subString": "*", "expressionType": "TAG"}
        client = {
            "clientID": "probe@1",
            "producerDataSet": [{"groupName": "LiveSenders"}],
            "consumerDataSet": [
                {
                    "groupName": "Live",
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                    "subscriptionDataSet": [subscription],
                    "unitMode": False,
                }
            ],
        }
        beat = heart.ask(RequestCode.HEART_BEAT, {}, json.dumps(client).encode())
        assert beat.code == 0, beat.remark

    def _pop(self) -> None:
        """Pop a message for the requests that name one; versions before 5.0 refuse that."""
        new = {**_NEW_TOPIC, "topic": "Popped"}
        assert self._ask(RequestCode.UPDATE_AND_CREATE_TOPIC, new)["code"] == 0
        for _ in range(_POPS):
            sent = self._ask(RequestCode.SEND_MESSAGE, {**_SEND, "topic": "Popped"}, b"x")
            assert sent["code"] == 0, sent
        whole = next(case for case in BROKER if case.code == RequestCode.POP_MESSAGE)
        try:
            answer = self._connection.ask(whole.code, whole.fields, timeout=TIMEOUT_S)
        except TimeoutError:
            answer = None
        if answer is None or answer.code != 0:
            self._places["handle"] = "none"
            return
        fields = answer.fields
        retry, queue, start = fields["startOffsetInfo"].split(" ")
        words = (start, fields["popTime"], fields["invisibleTime"], fields["reviveQid"], retry)
        self._places["handle"] = " ".join((*words, "broker-a", queue, start))

    def play(self) -> Iterator[dict[str, Any]]:
        """Send everything; yield one row for each request."""
        for number, case in enumerate(CASES[self.kind]):
            # A version that does not know the request may not answer it at all.
            looks = case.look is not None
            for field, how, fields in variants(case):
                if how == "no field" and not case.fields:
                    continue
                self._count += 1
                self._places |= {"new": f"P{self._count}Q", "port": str(1000 + self._count)}
                filled = {key: self._fill(value) for key, value in fields.items()}
                row: dict[str, Any] = {"case": number, "code": int(case.code)}
                row |= {"field": field, "how": how}
                row["answer"] = self._ask(case.code, filled, case.body)
                if looks and case.look is not None:
                    code, asked = case.look
                    seen = {key: self._fill(value) for key, value in asked.items()}
                    row["look"] = self._look(code, seen)
                    looks = row["look"]["code"] is not None
                yield row
                if how == "whole" and row["answer"]["code"] is None:
                    break


def play(kind: str, address: str) -> list[dict[str, Any]]:
    """Send everything to one server."""
    probe = Probe(kind, address)
    try:
        probe.prepare()
        return list(probe.play())
    finally:
        probe.close()
