"""Administration: topics, routes, clusters, groups.

Example:
    >>> from pyrmq import Admin
    >>> from pyrmq.testing import cluster
    >>> with cluster() as running, Admin(name_server=running.name_server) as admin:
    ...     admin.create_topic("orders", queues=4)
    ...     "orders" in admin.topics()
    True
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import monotonic, sleep
from typing import Any, Self

from pyrmq._admin.groups import GroupAdmin, GroupDescription, GroupLag, GroupMember
from pyrmq._admin.messages import MessageAdmin, MessageTrace, MessageTrack
from pyrmq._admin.modes import ConsumeMode, ModeAdmin
from pyrmq._admin.requests import body_of as _body
from pyrmq._admin.requests import on_each
from pyrmq._admin.requests import queue_of as _queue
from pyrmq._admin.values import (
    BrokerAddresses,
    GroupOffset,
    QueueOffsets,
    TopicQueues,
    TopicRoute,
)
from pyrmq._client import log
from pyrmq._client.security.credentials import Credentials
from pyrmq._client.security.tls import Tls
from pyrmq._client.values import name_servers
from pyrmq._names import PERM_READ, PERM_WRITE, TEMPLATE_TOPIC, V4_7_1
from pyrmq.codes import RequestCode, ResponseCode
from pyrmq.errors import (
    ConfigError,
    ConnectionLost,
    NameServerUnreachable,
    RequestTimeout,
    RmqError,
    RouteError,
    TopicNotFound,
)
from pyrmq.message import QueueId
from pyrmq.remoting import Client, Command, RequestHook, answer_error

__all__ = [
    "Admin",
    "BrokerAddresses",
    "ConsumeMode",
    "GroupDescription",
    "GroupLag",
    "GroupMember",
    "GroupOffset",
    "MessageTrace",
    "MessageTrack",
    "QueueOffsets",
    "TopicQueues",
    "TopicRoute",
]

_REGISTRATION_S = 2.0
"""How long a broker may take to register a topic that it has accepted."""


class Admin(GroupAdmin, ModeAdmin, MessageAdmin):
    """Sends requests to name servers and brokers, and changes topics and groups.

    Args:
        name_server: ``host:port;host:port``, or a sequence of ``host:port``; without it the
            environment variable ``NAMESRV_ADDR`` is read.
        timeout: Seconds to wait for each answer.
        credentials: The user that requests are sent as, and its secret. Default: the file that the
            environment variable ``PYRMQ_CREDENTIALS`` names; without it requests are not signed.
        tls: Open connections with TLS. Default: what the credentials file or the environment
            variable ``PYRMQ_TLS`` says; without them plain TCP.
        hooks: :class:`pyrmq.remoting.RequestHook` objects, called before and after each request.

    Raises:
        ConfigError: No name server is given.

    Example:
        >>> with Admin(name_server="127.0.0.1:9876") as admin:  # doctest: +SKIP
        ...     admin.topics()
    """

    def __init__(
        self,
        *,
        name_server: str | Sequence[str] | None = None,
        timeout: float = 5.0,
        credentials: Credentials | None = None,
        tls: Tls | None = None,
        hooks: Sequence[RequestHook] = (),
    ) -> None:
        self._name_servers = name_servers(name_server)
        self._timeout = timeout
        self._client = Client(shared=True, credentials=credentials, tls=tls, hooks=hooks)

    def topics(self) -> list[str]:
        """List the topics that name servers know, sorted.

        Raises:
            NameServerUnreachable: No name server answered.

        Example:
            >>> admin.topics()  # doctest: +SKIP
            ['TBW102', 'orders']
        """
        answer = self._request_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return sorted(_body(answer).get("topicList") or [])

    def route(self, topic: str) -> TopicRoute:
        """Request a topic's route.

        Raises:
            TopicNotFound: The name servers do not know it.
            NameServerUnreachable: No name server answered.

        Example:
            >>> admin.route("orders").queues  # doctest: +SKIP
            [TopicQueues(broker='broker-a', read_queues=4, write_queues=4, perm=6)]
        """
        fields: dict[str, str | int | bool | None] = {"topic": topic}
        fields["acceptStandardJsonOnly"] = True
        body = _body(self._request_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields))
        queues = [
            TopicQueues(
                data["brokerName"],
                int(data.get("readQueueNums", 0)),
                int(data.get("writeQueueNums", 0)),
                int(data.get("perm", 0)),
            )
            for data in body.get("queueDatas") or []
        ]
        brokers = [_broker(data) for data in body.get("brokerDatas") or []]
        return TopicRoute(topic, brokers, sorted(queues, key=lambda queue: queue.broker))

    def cluster(self) -> dict[str, list[BrokerAddresses]]:
        """List the brokers of each cluster, by name.

        Raises:
            NameServerUnreachable: No name server answered.

        Example:
            >>> admin.cluster()  # doctest: +SKIP
            {'DefaultCluster': [BrokerAddresses(name='broker-a', ...)]}
        """
        body = _body(self._request_name_server(RequestCode.GET_BROKER_CLUSTER_INFO))
        brokers = body.get("brokerAddrTable") or {}
        clusters = body.get("clusterAddrTable") or {}
        return {
            name: [_broker(brokers[member]) for member in sorted(members) if member in brokers]
            for name, members in sorted(clusters.items())
        }

    def create_topic(
        self,
        topic: str,
        *,
        queues: int = 8,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int = PERM_READ | PERM_WRITE,
        order: bool = False,
        cluster: str | None = None,
        brokers: Sequence[str] | None = None,
    ) -> None:
        """Create a topic, or change an existing one.

        Args:
            topic: Topic.
            queues: Queues on each broker.
            read_queues: Number of queues that may be read. Default: `queues`.
            write_queues: Number of queues that may be written to. Default: `queues`.
            perm: Permission bits: 4 read, 2 write.
            order: Whether the topic is ordered.
            cluster: Create it only on the masters of this cluster.
            brokers: Create it only on these brokers, by name.

        Raises:
            ConfigError: There is no such broker or cluster.
            RouteError: There is no broker.
            BrokerError: A broker refused; the text says why, and at which brokers the topic was
                created. So does that of a broker that did not answer.

        Example:
            >>> admin.create_topic("orders", queues=4)  # doctest: +SKIP
        """
        read = queues if read_queues is None else read_queues
        write = queues if write_queues is None else write_queues
        fields: dict[str, str | int | bool | None] = {
            "topic": topic,
            "defaultTopic": TEMPLATE_TOPIC,
            "readQueueNums": read,
            "writeQueueNums": write,
            "perm": perm,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": order,
        }
        names = self._chosen(cluster, brokers)

        def create(address: str) -> None:
            answer = self._request(address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
            if answer.version < V4_7_1:
                # Such a broker answers first and registers the topic then.
                self._await_queues(topic, names[address], read, write)

        on_each(self, [*names], create, done="created at")

    def delete_topic(self, topic: str, *, cluster: str | None = None) -> None:
        """Delete a topic with its messages, on every broker and name server.

        Args:
            topic: Topic.
            cluster: In this cluster only.

        Raises:
            TopicNotFound: The name servers do not know it.
            BrokerError: A broker refused; the text says why.

        Example:
            >>> admin.delete_topic("orders")  # doctest: +SKIP
        """
        self.route(topic)
        for broker in self._masters(cluster, None):
            self._request(broker, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
        for address in self._name_servers:
            fields = {"topic": topic, "clusterName": cluster}
            self._request(address, RequestCode.DELETE_TOPIC_IN_NAMESRV, fields)

    def topic_stats(self, topic: str) -> dict[QueueId, QueueOffsets]:
        """Request the offsets of a topic's queues.

        Raises:
            TopicNotFound: The name servers do not know it.

        Example:
            >>> admin.topic_stats("orders")  # doctest: +SKIP
            {QueueId(topic='orders', broker='broker-a', queue_id=0): QueueOffsets(first=0, ...)}
        """
        found: dict[QueueId, QueueOffsets] = {}
        for address in self._masters_of(topic):
            answer = self._request(address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
            for name, offsets in (_body(answer).get("offsetTable") or {}).items():
                found[_queue(name)] = QueueOffsets(
                    int(offsets.get("minOffset", 0)),
                    int(offsets.get("maxOffset", 0)),
                    int(offsets.get("lastUpdateTimestamp", 0)),
                )
        return dict(sorted(found.items()))

    def groups(self, topic: str) -> list[str]:
        """List the groups that consume a topic.

        Raises:
            TopicNotFound: The name servers do not know it.

        Example:
            >>> admin.groups("orders")  # doctest: +SKIP
            ['kitchen']
        """
        found: set[str] = set()
        for address in self._masters_of(topic):
            answer = self._request(
                address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic}
            )
            found.update(_body(answer).get("groupList") or [])
        return sorted(found)

    def consumer_progress(self, group: str, topic: str | None = None) -> dict[QueueId, GroupOffset]:
        """Request a group's committed offsets.

        Args:
            group: Consumer group.
            topic: Only this topic.

        Raises:
            BrokerError: A broker refused; the text says why.

        Example:
            >>> admin.consumer_progress("kitchen")  # doctest: +SKIP
            {QueueId(topic='orders', broker='broker-a', queue_id=0): GroupOffset(committed=1, ...)}
        """
        found: dict[QueueId, GroupOffset] = {}
        fields = {"consumerGroup": group, "topic": topic}
        masters = self._masters(None, None) if topic is None else self._masters_of(topic)
        for address in masters:
            answer = self._request(address, RequestCode.GET_CONSUME_STATS, fields)
            for name, offsets in (_body(answer).get("offsetTable") or {}).items():
                found[_queue(name)] = GroupOffset(
                    int(offsets.get("consumerOffset", -1)),
                    int(offsets.get("brokerOffset", 0)),
                    int(offsets.get("lastTimestamp", 0)),
                )
        return dict(sorted(found.items()))

    def close(self) -> None:
        """Close the connections that no other client of this process uses.

        Example:
            >>> admin.close()  # doctest: +SKIP
        """
        self._client.close()

    def __enter__(self) -> Self:
        """Return the object."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _request(
        self,
        address: str,
        code: int,
        fields: Mapping[str, str | int | bool | None] | None = None,
        body: bytes | None = None,
    ) -> Command:
        return self._client.ask(address, code, fields, body, timeout=self._timeout)

    def _version(self, address: str) -> int:
        code = RequestCode.GET_BROKER_RUNTIME_INFO
        # A refusal has it, too.
        return self._client.request(address, code, timeout=self._timeout).version

    def _request_name_server(
        self, code: int, fields: Mapping[str, str | int | bool | None] | None = None
    ) -> Command:
        tried = []
        for address in self._name_servers:
            try:
                answer = self._client.request(address, code, fields, timeout=self._timeout)
            except (ConnectionLost, RequestTimeout) as error:
                tried.append(str(error))
                log.get("pyrmq.admin").warning("name server %s did not answer: %s", address, error)
                continue
            if answer.code == ResponseCode.TOPIC_NOT_EXIST:
                topic = str((fields or {}).get("topic", ""))
                raise TopicNotFound(
                    f"topic `{topic}` does not exist. Fix: `pyrmq topic create {topic}`",
                    topic=topic,
                    remark=answer.remark or "",
                    address=address,
                )
            if answer.code != ResponseCode.SUCCESS:
                raise answer_error(address, code, answer)
            return answer
        raise NameServerUnreachable(
            f"no name server answered; tried {'; '.join(tried)}. Fix: start one "
            "(`pyrmq nameserver`) or correct `name_server` (or NAMESRV_ADDR)",
            addresses=";".join(self._name_servers),
        )

    def _await_queues(self, topic: str, broker: str, read: int, write: int) -> None:
        until = monotonic() + _REGISTRATION_S
        pause = 0.05
        while True:
            # The broker has the topic: an error of a name server is none of the request.
            with suppress(RmqError):
                for queues in self.route(topic).queues:
                    # Such a broker may register its own permission instead of the topic's.
                    given = queues.broker, queues.read_queues, queues.write_queues
                    if given == (broker, read, write):
                        return
            left = until - monotonic()
            if left <= 0:
                break
            sleep(min(pause, left))
            pause *= 2
        log.get("pyrmq.admin").warning(
            "%s accepted the topic `%s`, but has not registered it yet", broker, topic
        )

    def _master_names(self) -> dict[str, str]:
        brokers = [broker for members in self.cluster().values() for broker in members]
        return {broker.master: broker.name for broker in brokers if broker.master is not None}

    def _masters_of(self, topic: str) -> list[str]:
        masters = [broker.master for broker in self.route(topic).brokers]
        return sorted(master for master in masters if master is not None)

    def _masters(self, cluster: str | None, brokers: Sequence[str] | None) -> list[str]:
        return [*self._chosen(cluster, brokers)]

    def _chosen(self, cluster: str | None, brokers: Sequence[str] | None) -> dict[str, str]:
        """The broker name of each master's address."""
        clusters = self.cluster()
        if cluster is not None and cluster not in clusters:
            raise ConfigError(f"no cluster `{cluster}`; there are: {', '.join(clusters) or 'none'}")
        known = [
            broker
            for name, members in clusters.items()
            for broker in members
            if cluster in {None, name}
        ]
        unknown = set(brokers or ()) - {broker.name for broker in known}
        if unknown:
            names = ", ".join(broker.name for broker in known) or "none"
            raise ConfigError(f"no broker `{min(unknown)}`; there are: {names}")
        masters = {
            broker.master: broker.name
            for broker in known
            if broker.master is not None and (brokers is None or broker.name in brokers)
        }
        if not masters:
            raise RouteError(
                "no broker with a master is registered. Fix: start one (`pyrmq broker`)"
            )
        return masters


def _broker(data: Mapping[str, Any]) -> BrokerAddresses:
    addresses = {int(number): address for number, address in data["brokerAddrs"].items()}
    return BrokerAddresses(
        data["brokerName"], data.get("cluster", ""), dict(sorted(addresses.items()))
    )
