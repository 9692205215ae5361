"""Random sequences of requests to two name servers in step; every answer is compared.

Each sequence uses its own names, so that it does not see the remains of earlier ones. It omits
deliberate differences (docs/differences.md): a broker that changes its name or cluster, one that is
refused before its first registration, several on one connection.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyrmq.codes import RequestCode
from tests.e2e.wire import Connection
from tests.interop.name_answers import comparable
from tests.interop.name_bodies import TopicConfig, Version, body_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyrmq import _core

VERSIONS = (0, 333, 399, 401, 513)
CLUSTERS, NAMES, TOPICS = 2, 3, 6
SETTLE_SECONDS = 10.0
SWITCHES = (
    "orderMessageEnable",
    "supportActingMaster",
    "deleteTopicWithBrokerRegistration",
    "returnOrderTopicConfigToBroker",
    "enableTopicList",
)


@dataclass
class Side:
    """One name server, with a connection for each broker of the sequence and one for queries."""

    address: str
    brokers: dict[str, Connection] = field(default_factory=dict)
    asking: Connection | None = None

    def connection(self, broker: str | None) -> Connection:
        """Return the connection of a broker, or the one for queries."""
        if broker is None:
            self.asking = self.asking or Connection(self.address)
            return self.asking
        if broker not in self.brokers:
            self.brokers[broker] = Connection(self.address)
        return self.brokers[broker]

    def close(self, broker: str) -> None:
        """Close a broker's connection."""
        connection = self.brokers.pop(broker, None)
        if connection is not None:
            connection.close()

    def close_all(self, prefix: str) -> None:
        """Close every connection, and wait until no broker of these names remains."""
        for broker in list(self.brokers):
            self.close(broker)
        until = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < until:
            answer = self.connection(None).ask(RequestCode.GET_BROKER_CLUSTER_INFO)
            if prefix.encode() not in (answer.body or b""):
                break
            time.sleep(0.001)
        if self.asking is not None:
            self.asking.close()
            self.asking = None


@dataclass(frozen=True, kw_only=True)
class Broker:
    """A broker process as it last registered."""

    name: str
    id: int
    address: str
    topics: tuple[TopicConfig, ...]
    version: Version


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Fields that all brokers of a name share."""

    cluster: str
    acting: str | None
    zone: str | None
    mapped: bool
    filters: tuple[str, ...]


class Mismatch(AssertionError):
    """Two answers differ; the text has the sequence."""


class Sequence:
    """One sequence of requests.

    Args:
        seed: its number; the same number is the same sequence.
        sides: the two name servers.
    """

    def __init__(self, seed: int, sides: tuple[Side, Side]) -> None:
        """Choose the settings of the whole sequence."""
        self.random = random.Random(seed)
        self.seed, self.sides = seed, sides
        self.prefix = f"s{seed}x"
        self.live: dict[str, Broker] = {}
        # Names that were unused for a while: ours has forgotten their static topics.
        self.left: set[str] = set()
        self.history: list[str] = []
        self.addresses = 0
        # The line of a compressed registration has no flags.
        self.flags = self.random.random() < 0.5
        names = [f"{self.prefix}-broker-{number}" for number in range(NAMES)]
        self.kinds = {name: self._kind() for name in names}
        self.topics = [f"{self.prefix}-topic-{number}" for number in range(TOPICS)]
        self.sys_flags = {topic: self.random.randrange(4) * self.flags for topic in self.topics}

    def _kind(self) -> Kind:
        pick = self.random
        return Kind(
            cluster=f"{self.prefix}-cluster-{pick.randrange(CLUSTERS)}",
            acting=pick.choice([None, None, "true", "true", "false"]),
            zone=pick.choice([None, None, "east", "west"]),
            mapped=pick.random() < 0.2,
            filters=pick.choice([(), (), ("9.9.9.9:1", "9.9.9.9:2")]),
        )

    def play(self, steps: int) -> None:
        """Run the sequence, and remove everything again.

        Raises:
            Mismatch: the two answered differently.
        """
        choices: list[tuple[int, Callable[[], None]]] = [
            (6, self.new_broker),
            (6, self.again),
            (2, self.unregister),
            (2, self.close),
            (1, self.expire),
            (1, self.single_of_an_unknown_id),
            (1, self.bad_registration),
            (3, self.data_version),
            (2, self.heartbeat),
            (8, self.route),
            (2, self.permission),
            (3, self.lists),
            (2, self.members),
            (2, self.delete_topic),
            (2, self.register_topic),
            (3, self.key_values),
        ]
        weights, actions = zip(*choices, strict=True)
        try:
            self.switches()
            for _ in range(steps):
                self.random.choices(actions, weights)[0]()
            self.everything()
        finally:
            self.clean()

    def ask(
        self,
        code: int,
        fields: dict[str, str] | None = None,
        body: bytes | None = None,
        *,
        broker: str | None = None,
        version: int = 513,
    ) -> _core.Command:
        """Send a request to both and compare; return the first one's answer."""
        form = self.random.choice(["JSON", "JSON", "ROCKETMQ"])
        self.history.append(f"{code} {fields} {body!r:.300} version {version} {form} by {broker}")
        answers = [
            side.connection(broker).ask(code, fields, body, version=version, serialize_type=form)
            for side in self.sides
        ]
        zoned = bool(fields and "__ZONE_MODE" in fields)
        names = frozenset(name for name, kind in self.kinds.items() if kind.mapped)
        mapped = names - self.left if names else None
        seen = [
            comparable(code, answer, self.prefix, zoned=zoned, mapped=mapped) for answer in answers
        ]
        if seen[0] != seen[1]:
            told = "\n".join(f"{answer.remark} {answer.body!r}" for answer in answers)
            steps = "\n".join(self.history)
            raise Mismatch(f"seed {self.seed}\n{steps}\n{seen[0]}\n{seen[1]}\n{told}")
        return answers[0]

    def switches(self) -> None:
        """Set the switches of this sequence on both."""
        values = {key: self.random.random() < 0.5 for key in SWITCHES}
        text = "".join(f"{key}={str(value).lower()}\n" for key, value in values.items())
        self.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=text.encode())

    def _configs(self, least: int) -> tuple[TopicConfig, ...]:
        pick = self.random
        chosen = pick.sample(self.topics, pick.randint(least, TOPICS))
        return tuple(
            TopicConfig(
                topic, pick.randint(1, 9), pick.randint(1, 9), pick.choice((2, 4, 6, 7)),
                self.sys_flags[topic],
            )
            for topic in chosen
        )  # fmt: skip

    def _register(
        self, broker: Broker, *, crc: str = "right", timeout_ms: int | None = None
    ) -> _core.Command:
        pick, kind = self.random, self.kinds[broker.name]
        old = not kind.filters and not kind.mapped and kind.acting is None
        version = pick.choice((30, 333, 399, 513, 513)) if old else 513
        compressed = version > 30 and not self.flags and pick.random() < 0.3
        body, check = body_of(
            broker.topics,
            broker.version,
            version=version,
            compressed=compressed,
            filters=kind.filters,
            mapped_by=broker.name if kind.mapped else None,
        )
        fields = {
            "brokerName": broker.name,
            "brokerAddr": broker.address,
            "clusterName": kind.cluster,
            "haServerAddr": f"{broker.address}2",
            "brokerId": str(broker.id),
            "compressed": "true" if compressed else "false",
            "bodyCrc32": {"right": str(check), "none": "0", "wrong": str(check ^ 1)}[crc],
        }
        if timeout_ms is not None:
            fields["heartbeatTimeoutMillis"] = str(timeout_ms)
        if kind.acting is not None:
            fields["enableActingMaster"] = kind.acting
        if kind.zone is not None:
            fields["__ZONE_NAME"] = kind.zone
        code = RequestCode.REGISTER_BROKER
        return self.ask(code, fields, body, broker=broker.address, version=version)

    def _take(self, broker: Broker) -> None:
        """Register, and record the brokers that this removed."""
        holder = self._holder(broker.name, broker.id)
        crc = self.random.choice(("right", "right", "none"))
        answer = self._register(broker, crc=crc)
        stale = (
            holder is not None
            and holder.address != broker.address
            and holder.version.state > broker.version.state
        )
        if answer.code != 0 or stale:
            return
        if holder is not None and holder.address != broker.address:
            # The remains of a replaced broker differ on purpose: they are not queried again.
            del self.live[holder.address]
        self.live[broker.address] = broker

    def _holder(self, name: str, broker_id: int) -> Broker | None:
        same = (one for one in self.live.values() if (one.name, one.id) == (name, broker_id))
        return next(same, None)

    def _fresh_address(self) -> str:
        self.addresses += 1
        return f"10.{self.seed >> 8 & 255}.{self.seed & 255}.{self.addresses}:1091"

    def new_broker(self) -> None:
        """Register a new process."""
        pick = self.random
        self._take(
            Broker(
                name=pick.choice(list(self.kinds)),
                id=pick.choice((0, 0, 1, 2)),
                address=self._fresh_address(),
                topics=self._configs(2),
                version=Version(state=pick.choice((0, 0, 5)), counter=1),
            )
        )

    def again(self) -> None:
        """Register a process again: unchanged, with other topics, or with another id."""
        if not self.live:
            return
        pick = self.random
        broker = pick.choice(list(self.live.values()))
        change = pick.random()
        if change < 0.3:
            counter = broker.version.counter + pick.randrange(2)
            version = broker.version._replace(counter=counter)
            broker = replace(broker, topics=self._configs(1), version=version)
        elif change < 0.5:
            version = Version(state=5, counter=broker.version.counter + pick.randrange(2))
            broker = replace(broker, id=pick.randrange(3), version=version, topics=self._configs(2))
        self._take(broker)

    def unregister(self) -> None:
        """Unregister a broker."""
        if not self.live:
            return
        broker = self.random.choice(list(self.live.values()))
        fields = {
            "brokerName": broker.name,
            "brokerAddr": broker.address,
            "clusterName": self.kinds[broker.name].cluster,
            "brokerId": str(broker.id),
        }
        self.ask(RequestCode.UNREGISTER_BROKER, fields, broker=broker.address)
        self._await_gone(broker)

    def close(self) -> None:
        """Close a broker's connection."""
        if not self.live:
            return
        broker = self.random.choice(list(self.live.values()))
        self.history.append(f"close {broker.address}")
        for side in self.sides:
            side.close(broker.address)
        self._await_gone(broker)

    def expire(self) -> None:
        """Register a process that stays silent for longer than its timeout."""
        pick = self.random
        name, number = pick.choice(list(self.kinds)), pick.randrange(3)
        if self._holder(name, number) is not None:
            return
        broker = Broker(
            name=name,
            id=number,
            address=self._fresh_address(),
            topics=self._configs(2),
            version=Version(state=0, counter=1),
        )
        # Long enough for the answer to leave before the connection is closed.
        if self._register(broker, timeout_ms=50).code != 0:
            return
        self.live[broker.address] = broker
        self.history.append(f"{broker.address} expires")
        self._await_gone(broker)
        # The real one has closed the connection.
        for side in self.sides:
            side.close(broker.address)

    def _await_gone(self, broker: Broker) -> None:
        del self.live[broker.address]
        if all(other.name != broker.name for other in self.live.values()):
            self.left.add(broker.name)
        fields = {"brokerName": broker.name, "clusterName": self.kinds[broker.name].cluster}
        quoted = f'"{broker.address}"'.encode()
        until = time.monotonic() + SETTLE_SECONDS
        for side in self.sides:
            while True:
                answer = side.connection(None).ask(RequestCode.GET_BROKER_MEMBER_GROUP, fields)
                if quoted not in (answer.body or b""):
                    break
                assert time.monotonic() < until, f"{broker.address} stays at {side.address}"
                time.sleep(0.001)

    def single_of_an_unknown_id(self) -> None:
        """Register one topic of an unregistered broker: refused."""
        names = {broker.name for broker in self.live.values()}
        free = [
            (name, number)
            for name in sorted(names)
            for number in range(3)
            if self._holder(name, number) is None
        ]
        if not free:
            return
        name, number = self.random.choice(free)
        alone = Broker(
            name=name,
            id=number,
            address=self._fresh_address(),
            topics=self._configs(TOPICS)[:1],
            version=Version(state=0, counter=1),
        )
        assert self._register(alone).code == 1

    def bad_registration(self) -> None:
        """Register with a wrong checksum: refused."""
        if self.live:
            broker = self.random.choice(list(self.live.values()))
            assert self._register(broker, crc="wrong").code == 1

    def data_version(self) -> None:
        """Ask whether a broker must register."""
        broker = self.random.choice([None, *self.live.values()])
        counter = self.random.randrange(3)
        fields = {
            "brokerName": broker.name if broker else f"{self.prefix}-none",
            "brokerAddr": broker.address if broker else self._fresh_address(),
            "clusterName": self.kinds[broker.name].cluster if broker else "none",
            "brokerId": "0",
        }
        state = broker.version.state if broker else 0
        body = json.dumps(Version(state=state, counter=counter).tree()).encode()
        self.ask(RequestCode.QUERY_DATA_VERSION, fields, body)

    def heartbeat(self) -> None:
        """Send a heartbeat."""
        broker = self.random.choice([None, *self.live.values()])
        fields = {
            "brokerName": broker.name if broker else "none",
            "brokerAddr": broker.address if broker else self._fresh_address(),
            "clusterName": self.kinds[broker.name].cluster if broker else "none",
            "brokerId": str(broker.id) if broker else "0",
        }
        self.ask(RequestCode.BROKER_HEARTBEAT, fields)

    def route(self, topic: str | None = None) -> None:
        """Ask for a topic's route, in any form."""
        pick = self.random
        fields = {"topic": topic or pick.choice([*self.topics, f"{self.prefix}-none"])}
        wish = pick.choice((None, "true", "false"))
        if wish is not None:
            fields["acceptStandardJsonOnly"] = wish
        if pick.random() < 0.2:
            fields["__ZONE_MODE"] = pick.choice(("true", "false", "TRUE"))
            fields["__ZONE_NAME"] = pick.choice(("east", "WEST", "", "  "))
        version = pick.choice(VERSIONS)
        self.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields, version=version)

    def permission(self) -> None:
        """Take or give write permission."""
        code = self.random.choice(
            (RequestCode.WIPE_WRITE_PERM_OF_BROKER, RequestCode.ADD_WRITE_PERM_OF_BROKER)
        )
        self.ask(code, {"brokerName": self.random.choice([*self.kinds, "none"])})

    def lists(self) -> None:
        """Ask for a list of topics, or for all brokers."""
        code = self.random.choice(
            (
                RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
                RequestCode.GET_TOPICS_BY_CLUSTER,
                RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
                RequestCode.GET_UNIT_TOPIC_LIST,
                RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
                RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
                RequestCode.GET_BROKER_CLUSTER_INFO,
            )
        )
        clusters = [kind.cluster for kind in self.kinds.values()]
        self.ask(code, {"cluster": self.random.choice([*clusters, "none"])})

    def members(self) -> None:
        """Ask for the brokers of a name."""
        name = self.random.choice([*self.kinds, f"{self.prefix}-none"])
        cluster = self.random.choice([kind.cluster for kind in self.kinds.values()])
        fields = {"brokerName": name, "clusterName": cluster}
        self.ask(RequestCode.GET_BROKER_MEMBER_GROUP, fields)

    def delete_topic(self) -> None:
        """Delete a topic, everywhere or in a cluster."""
        fields = {"topic": self.random.choice([*self.topics, f"{self.prefix}-none"])}
        cluster = self.random.choice([None, "", *(kind.cluster for kind in self.kinds.values())])
        if cluster is not None:
            fields["clusterName"] = cluster
        self.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, fields)

    def register_topic(self) -> None:
        """Register one topic of a broker."""
        if not self.live:
            return
        topic = self.random.choice(self.topics)
        flag = "topicSysFlag" if self.random.random() < 0.7 or self.flags else "topicSynFlag"
        queues = {
            "brokerName": self.random.choice(list(self.live.values())).name,
            "perm": self.random.choice((2, 4, 6)),
            "readQueueNums": self.random.randint(1, 9),
            "writeQueueNums": self.random.randint(1, 9),
            flag: self.sys_flags[topic],
        }
        body = json.dumps({"brokerDatas": [], "queueDatas": [queues]}).encode()
        self.ask(RequestCode.REGISTER_TOPIC_IN_NAMESRV, {"topic": topic}, body)

    def key_values(self) -> None:
        """Put, get, delete or list key-value configuration."""
        pick = self.random
        ordered = pick.random() < 0.5
        namespace = "ORDER_TOPIC_CONFIG" if ordered else f"{self.prefix}-{pick.randrange(2)}"
        fields = {"namespace": namespace, "key": pick.choice(self.topics)}
        code = pick.choice(
            (
                RequestCode.PUT_KV_CONFIG,
                RequestCode.GET_KV_CONFIG,
                RequestCode.DELETE_KV_CONFIG,
                RequestCode.GET_KVLIST_BY_NAMESPACE,
            )
        )
        if code == RequestCode.PUT_KV_CONFIG:
            fields["value"] = pick.choice(("a:4", "b:2;a:8", 'ü "quoted" <x>&\'/'))
        self.ask(code, fields)

    def everything(self) -> None:
        """Query everything that the sequence can have changed."""
        for topic in self.topics:
            self.route(topic)
        for name, kind in self.kinds.items():
            fields = {"brokerName": name, "clusterName": kind.cluster}
            self.ask(RequestCode.GET_BROKER_MEMBER_GROUP, fields)
        self.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        self.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        self.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)

    def clean(self) -> None:
        """Remove everything again."""
        for side in self.sides:
            asking = side.connection(None)
            for topic in self.topics:
                fields = {"namespace": "ORDER_TOPIC_CONFIG", "key": topic}
                asking.ask(RequestCode.DELETE_KV_CONFIG, fields)
            side.close_all(self.prefix)
