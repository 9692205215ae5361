"""The pulling consumer.

Example:
    >>> from pyrmq import Producer, PullConsumer
    >>> from pyrmq.testing import cluster
    >>> with cluster() as running:
    ...     with Producer(name_server=running.name_server) as producer:
    ...         _ = producer.send("orders", b"two coffees")
    ...     with PullConsumer(name_server=running.name_server, group="kitchen") as consumer:
    ...         consumer.subscribe("orders")
    ...         print(next(iter(consumer)).body)
    b'two coffees'
"""

import weakref
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Literal, Self

from pyrmq import _core
from pyrmq._client import log
from pyrmq._client.ending import leave
from pyrmq._client.options import ConfiguredConsumer
from pyrmq._client.values import milliseconds, places_of, start_of, whole
from pyrmq.errors import CommitError, ConfigError
from pyrmq.message import QueueId, ReceivedMessage

__all__ = ["PullConsumer"]


class PullConsumer(ConfiguredConsumer):
    """Pulls messages. One consumer serves any number of threads.

    Join a group with :meth:`subscribe`: its members share the queues of a topic, and brokers store
    the group's offsets. Or take queues yourself with :meth:`assign`. Messages are fetched ahead;
    :meth:`poll` and iteration return them. Returned messages count as done with the next poll (or
    step of the iteration), and are committed every few seconds and on :meth:`close`. A consumer
    that dies gets its last messages again.

    After a fork the child must make its own consumer: the parent's raises :class:`ForkError` there.

    Args:
        name_server: ``host:port;host:port``, or a sequence of ``host:port``. Default: the
            environment variable ``NAMESRV_ADDR``.
        group: Consumer group.
        start: Where the group begins in a queue that it has never committed: ``"first"`` (the
            oldest message that is kept), ``"last"`` (what comes from now on), or a time.
        instance_name: Distinguishes the consumers of one process for brokers. Default: a name is
            made up.
        batch: Messages to ask for at once. By default Apache's brokers return at most 32, ours
            1,024.
        suspend: Seconds that a broker may hold a pull while there is no message.
        ahead_bytes: Bytes fetched ahead for all queues together, shared evenly between them. A
            message that is larger than its queue's share is fetched alone.
        auto_commit: Seconds between commits of what is done. None: only :meth:`commit` commits;
            :meth:`close` and the return of a queue to the group do not.
        rebalance: Seconds between checks of this member's share of the queues. Brokers announce
            changes of the group at once.
        namespace: Prefix of the names of group and topics, as for a producer. Messages show topics
            without it.
        unit_name: The unit that this client belongs to. It is part of the client id and of the
            request to an address server.
        address_server: Where to ask for the name servers by HTTP, as for a producer.

    Raises:
        ConfigError: An option is out of its range, or no name server is given.

    Example:
        >>> consumer = PullConsumer(name_server="127.0.0.1:9876", group="kitchen")
        >>> consumer.close()
    """

    def _open(self) -> None:
        options = self._options
        self._core = _core.PullConsumer(**options.native())
        self._group = options.group
        self._closed = False
        self._unlog = log.serve(self)
        self._finalizer = weakref.finalize(self, leave, self._core)

    def subscribe(self, topic: str, tags: str = "*") -> None:
        """Join the group for a topic and take this member's share of its queues.

        Args:
            topic: Topic; it must exist.
            tags: ``*`` for all, or tags with ``||`` between them.

        Raises:
            TopicNotFound: No broker has the topic.
            NameServerUnreachable: No name server answered.
            RmqError: A broker refused, or did not answer.

        Example:
            >>> consumer.subscribe("orders", "new || paid")  # doctest: +SKIP
        """
        self._core.subscribe(topic, tags)

    def assign(
        self, queues: Iterable[QueueId] | Mapping[QueueId, int | None], tags: str = "*"
    ) -> None:
        """Take exactly these queues, without sharing them with the group.

        Args:
            queues: Queues (see :meth:`queues`); as a mapping, each with the offset to begin at.
                Without an offset a queue begins at the group's committed offset, or at ``start``.
            tags: ``*`` for all, or tags with ``||`` between them.

        Raises:
            RmqError: As :meth:`subscribe`.

        Example:
            >>> consumer.assign({consumer.queues("orders")[0]: 0})  # doctest: +SKIP
        """
        self._core.assign(places_of(queues), tags)

    def queues(self, topic: str) -> list[QueueId]:
        """Ask which queues of a topic can be read.

        Raises:
            TopicNotFound: No broker has the topic.

        Example:
            >>> consumer.queues("orders")  # doctest: +SKIP
            [QueueId(topic='orders', broker='broker-a', queue_id=0), ...]
        """
        return [QueueId(*place) for place in self._core.queues_of(topic)]

    def assignment(self) -> list[QueueId]:
        """List the queues that this consumer has now.

        Example:
            >>> consumer.assignment()  # doctest: +SKIP
            [QueueId(topic='orders', broker='broker-a', queue_id=0)]
        """
        return [QueueId(*place) for place, _ in self._core.positions()]

    def poll(self, max_messages: int = 1024, timeout: float | None = None) -> list[ReceivedMessage]:
        """Return messages; wait for the first.

        The messages of earlier polls count as done.

        Args:
            max_messages: The most to return.
            timeout: Seconds to wait for the first; 0 does not wait, None waits for ever.

        Returns:
            Messages, in order for each queue; an empty list when the time has passed.

        Raises:
            PermissionDenied: A queue may not be read.
            BrokerError: A broker refused for another permanent reason.
            ClosedError: The consumer is closed.

        Example:
            >>> for message in consumer.poll(timeout=1.0):  # doctest: +SKIP
            ...     print(message.queue_offset, message.body)
        """
        wait = None if timeout is None else milliseconds("timeout", timeout)
        return self._core.poll(whole("max_messages", max_messages, 1), wait)

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Yield messages one by one, for ever. A message is done when the next is requested."""
        poll = self._core.poll
        while not self._closed:
            yield from poll(1, None)

    def position(self, queue: QueueId) -> int:
        """Return the offset of the next message that a queue returns.

        Raises:
            ConfigError: The queue is not assigned to this consumer.

        Example:
            >>> consumer.position(queue)  # doctest: +SKIP
            42
        """
        for place, position in self._core.positions():
            if place == queue:
                return position
        raise ConfigError(f"{queue} is not assigned to this consumer")

    def seek(self, queue: QueueId, offset: int | Literal["first", "last"] | datetime) -> None:
        """Continue at another offset of an assigned queue.

        Args:
            queue: The queue.
            offset: An offset, ``"first"``, ``"last"``, or the time that messages were stored at.

        Raises:
            ConfigError: The queue is not assigned to this consumer.
            RmqError: The broker did not answer with the offset.

        Example:
            >>> consumer.seek(queue, "first")  # doctest: +SKIP
        """
        if not isinstance(offset, int):
            offset = self._core.offset(queue, *start_of(offset))
        self._core.seek(queue, offset)

    def commit(self) -> None:
        """Commit everything that was returned, at all brokers at the same time.

        Raises:
            CommitError: Some brokers refused or did not answer within 3 s. It lists their queues;
                all other queues are committed.

        Example:
            >>> consumer.commit()  # doctest: +SKIP
        """
        self._core.commit()

    def committed(self, queue: QueueId) -> int | None:
        """Ask for the group's committed offset in a queue.

        Returns:
            The offset of its next message; None if it has not committed one.

        Example:
            >>> consumer.committed(queue)  # doctest: +SKIP
            42
        """
        offset = self._core.offset(queue, "committed", 0)
        return None if offset < 0 else offset

    def bounds(self, queue: QueueId) -> tuple[int, int]:
        """Ask for a queue's first offset and the one that its next message will get.

        Example:
            >>> consumer.bounds(queue)  # doctest: +SKIP
            (0, 336776)
        """
        place = queue
        return self._core.offset(place, "first", 0), self._core.offset(place, "last", 0)

    def close(self, *, all_done: bool = True) -> None:
        """Commit, leave the group and close every connection. A second call does nothing.

        Args:
            all_done: Commit everything that was returned. False: leave out the messages of the last
                poll. With ``auto_commit=None`` nothing is committed.

        Raises:
            CommitError: Some offsets could not be committed; it lists their queues. The others are
                committed, and the consumer is closed.

        Example:
            >>> consumer.close()  # doctest: +SKIP
        """
        if self._closed:
            return
        self._closed = True
        self._finalizer.detach()
        try:
            self._core.shut(all_done)
        finally:
            self._unlog()

    def __enter__(self) -> Self:
        """Return the consumer."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the consumer. After an exception the messages of the last poll are not committed.

        Then a failed commit is only logged, so that the exception of the block is raised.
        """
        try:
            self.close(all_done=kind is None)
        except CommitError:
            if kind is None:
                raise

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._core.positions())} queues"
        return f"<PullConsumer group={self._group!r}, {state}>"
