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

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from time import monotonic
from typing import Literal, Self, TypeVar

from pyrmq._client.values import (
    committable,
    milliseconds,
    queue_offsets_of,
    start_of,
    topics_of,
    whole,
)
from pyrmq.consumer.membership import filter_of
from pyrmq.consumer.polled import WHICH, PolledConsumer, QueueOffsets, offsets_of
from pyrmq.consumer.rebalance import RebalanceCallbacks
from pyrmq.consumer.subscriptions import SubscribeCall, await_joined
from pyrmq.errors import CommitError, ConfigError
from pyrmq.message import MessageBatch, QueueId, ReceivedMessage

__all__ = ["PullConsumer"]

_log = logging.getLogger("pyrmq.consumer")

_Taken = TypeVar("_Taken", list[ReceivedMessage], MessageBatch)


class PullConsumer(PolledConsumer):
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
            oldest message that is stored), ``"last"`` (what arrives from now on), or a time.
        instance_name: Distinguishes the consumers of one process for brokers. Default: a name is
            made up.
        batch: Messages to request at once. By default Apache's brokers return at most 32, ours
            1,024.
        suspend: Seconds that a broker may hold a pull while there is no message.
        ahead_bytes: Memory of what is fetched ahead for all queues together, shared evenly between
            them. A message larger than its queue's share is fetched alone.
        ahead_messages: Messages fetched ahead for all queues together, shared evenly between them.
            None: only `ahead_bytes` limits them.
        auto_commit: Seconds between commits of what is done. None: only :meth:`commit` commits;
            :meth:`close` and the return of a queue to the group do not.
        rebalance: Seconds between checks of this member's share of the queues. Brokers announce
            changes of the group at once.
        namespace: Prefix of the names of group and topics, as for a producer. Messages show topics
            without it.
        unit_name: The unit that this client belongs to. It is part of the client id and of the
            request to an address server.
        address_server: Where to ask for the name servers by HTTP, as for a producer.
        allocate: How the members share the queues of a topic: ``"average"`` (a block of neighbours
            each), ``"circle"`` (one queue in turn), ``"consistent_hash"``, or a strategy of
            :mod:`pyrmq.routing.allocate` or your own, which is called in a thread of the consumer.
            All members of a group must use the same; otherwise queues are read twice or not at all.
        broadcasting: Every member gets every message (Apache ``BROADCASTING``) and keeps its
            offsets in its own file. The group has no retries: messages that fail are dropped.
            The file is named by `instance_name`, ``DEFAULT`` when empty: two members on one machine
            need different names.
        offset_dir: Folder of these files. Default: ``.rocketmq_offsets`` in the home directory.
        max_poll_interval: Seconds between two polls, after which the queues of subscribed topics go
            to other members, until the next poll. None: they stay.
        out_of_range: Where a queue continues when its broker does not have its position (messages
            that expired unread, a wrong :meth:`seek`): ``"nearest"``, the end of the queue that is
            nearer (Apache's brokers choose), ``"first"``, ``"last"``, or ``"error"``, with which
            polls raise :class:`pyrmq.errors.OffsetOutOfRange` until :meth:`seek` is called.
        on_assigned: Called as ``on_assigned(consumer, queues)`` by the thread that polls, before
            messages of these queues are returned: the place to :meth:`seek`. The three callbacks
            are for subscribed topics, not for :meth:`assign`, and must not poll.
        on_revoked: Called by the thread that polls, unsubscribes or closes, before queues go back;
            they can still be committed there. When it has returned, what was returned of them is
            committed (unless ``auto_commit=None``). If it raises, nothing is committed, and the
            call raises the same exception once the queues are gone. The members that get them do
            not wait for this.
        on_lost: Called with queues that are gone already: no poll for `max_poll_interval`, or their
            topic or broker no longer exists. Default: `on_revoked` is called.
        hooks: See what polls return, such as those of :mod:`pyrmq.otel`.
        request_fields: Header fields that are added to each request of this consumer and
            signed with it, such as a tenant's name (Apache: what an ``RPCHook`` adds); at most
            4 KiB.
        credentials: The user that requests are sent as, and its secret. Default: the file that the
            environment variable ``PYRMQ_CREDENTIALS`` names; without it requests are not signed.
        tls: Open connections with TLS. Default: what the credentials file or the environment
            variable ``PYRMQ_TLS`` says; without them plain TCP.
        trace: Write Apache's message traces for what each poll returns.
        trace_topic: Topic of the traces.

    Raises:
        ConfigError: An option is out of its range, or no name server is given.

    Example:
        >>> consumer = PullConsumer(name_server="127.0.0.1:9876", group="kitchen")
        >>> consumer.close()
    """

    def _open(self) -> None:
        super()._open()
        self._is_interrupted = False
        self._rebalances = (
            RebalanceCallbacks(self._control, self._options)
            if self._options.announces_rebalances()
            else None
        )

    def subscribe(
        self,
        topic: str | Iterable[str] | re.Pattern[str],
        tags: str = "*",
        *,
        sql: str | None = None,
    ) -> None:
        """Join the group for topics and take this member's share of their queues.

        Tags or a condition for a topic that is already subscribed to replace the old ones. Messages
        that were fetched with those and not returned are dropped.

        Args:
            topic: A topic, or several; they must all exist, or none is subscribed to. Or a compiled
                pattern: all topics whose whole name matches, and, within `rebalance` seconds, those
                that appear later. Of these, one that cannot be joined is logged and tried again;
                the call fails if no topic that matches can be joined. One that no name server has
                known for 90 s is left.
            tags: ``*`` for all, or tags with ``||`` between them.
            sql: A condition on the messages' properties in place of tags, such as ``"a > 5 AND
                color = 'red'"``; brokers evaluate it (``enablePropertyFilter=true``).

        Raises:
            ConfigError: Tags and a condition are given.
            FilterError: The condition is wrong; `position` says where.
            TopicNotFound: No broker has the topic.
            NameServerUnreachable: No name server answered.
            RmqError: A broker refused, or did not answer.

        Example:
            >>> consumer.subscribe("orders", "new || paid")  # doctest: +SKIP
        """
        text, is_sql = filter_of(tags, sql)
        if isinstance(topic, re.Pattern):
            self._subscriptions.add_pattern(topic, SubscribeCall(text, is_sql))
            self._watch()
            return
        topics = topics_of(topic)
        if len(topics) > 1:
            # A missing one must not make the group rebalance twice.
            for one in topics:
                self._core.queues_of(one)
        self._subscriptions.subscribe(topics, SubscribeCall(text, is_sql))
        if self._options.max_poll_interval is not None:
            self._watch()

    def unsubscribe(self, topic: str) -> None:
        """Leave the group for a topic: commit, and give its queues back.

        The messages of the last poll are not committed.

        Raises:
            ConfigError: The topic is not subscribed to.
            CommitError: Some brokers refused or did not answer; it lists their queues.

        Example:
            >>> consumer.unsubscribe("orders")  # doctest: +SKIP
        """
        failure: CommitError | None = None
        with self._subscriptions.unsubscribing(topic) as was_known:
            try:
                if self._rebalances is not None:
                    failure = self._rebalances.retire(self, topic, all_done=False)
            finally:
                was_there = self._control.unsubscribe(topic, False)
        if failure is not None:
            raise failure
        # Natively a topic is left already while it is not polled for too long.
        if not was_there and not was_known:
            raise ConfigError(f"topic `{topic}` is not subscribed to")

    def assign(
        self, queues: Iterable[QueueId] | Mapping[QueueId, int | None], tags: str = "*"
    ) -> None:
        """Take exactly these queues, without sharing them with the group.

        Args:
            queues: Queues (see :meth:`queues`); as a mapping, each with the offset to start at.
                Without an offset a queue starts at the group's committed offset, or at ``start``.
            tags: ``*`` for all, or tags with ``||`` between them.

        Raises:
            RmqError: As :meth:`subscribe`.

        Example:
            >>> consumer.assign({consumer.queues("orders")[0]: 0})  # doctest: +SKIP
        """
        self._core.assign(queue_offsets_of(queues), tags)

    def queues(self, topic: str) -> list[QueueId]:
        """Request the readable queues of a topic.

        Raises:
            TopicNotFound: No broker has the topic.

        Example:
            >>> consumer.queues("orders")  # doctest: +SKIP
            [QueueId(topic='orders', broker='broker-a', queue_id=0), ...]
        """
        return [QueueId(*place) for place in self._core.queues_of(topic)]

    def poll(self, max_messages: int = 1024, timeout: float | None = None) -> list[ReceivedMessage]:
        """Return messages; wait for the first.

        The messages of earlier polls count as done.

        Args:
            max_messages: The maximum to return.
            timeout: Seconds to wait for the first; 0 does not wait, None waits without limit.

        Returns:
            Messages, in order for each queue; an empty list when the time has passed.

        Raises:
            PermissionDenied: A queue may not be read.
            OffsetOutOfRange: A position does not exist, with ``out_of_range="error"``.
            BrokerError: A broker refused for another permanent reason.
            ClosedError: The consumer is closed.
            Exception: What `on_assigned`, `on_revoked` or `on_lost` raised.

        Example:
            >>> for message in consumer.poll(timeout=1.0):  # doctest: +SKIP
            ...     print(message.queue_offset, message.body)
        """
        wait = None if timeout is None else milliseconds("timeout", timeout)
        return self._polled(self._core.poll, max_messages, wait, lambda messages: messages)

    def poll_batch(self, max_messages: int = 1024, timeout: float | None = None) -> MessageBatch:
        """Return messages as one object, which decodes on access; wait for the first.

        It costs a fraction of a list of objects: a list for each property, or column buffers that
        pyarrow wraps. The messages of earlier polls count as done.

        Args:
            max_messages: The maximum to return.
            timeout: Seconds to wait for the first; 0 does not wait, None waits without limit.

        Raises:
            RmqError: As :meth:`poll`.

        Example:
            >>> batch = consumer.poll_batch(timeout=1.0)  # doctest: +SKIP
            >>> sum(len(body) for body in batch.bodies)  # doctest: +SKIP
        """
        wait = None if timeout is None else milliseconds("timeout", timeout)
        return self._polled(self._core.poll_batch, max_messages, wait, lambda batch: batch.messages)

    def _polled(
        self,
        take: Callable[[int, int | None], _Taken],
        max_messages: int,
        wait: int | None,
        messages_of: Callable[[_Taken], list[ReceivedMessage]],
    ) -> _Taken:
        """Poll; hooks and the limit of `max_poll_interval` see it."""
        whole("max_messages", max_messages, 1)
        if not self._is_polled_closely():
            return take(max_messages, wait)
        began = monotonic()
        joining = self._subscriptions.poll_begins()
        try:
            if joining is not None:
                await_joined(joining, wait)
                spent = round((monotonic() - began) * 1000)
                wait = None if wait is None else max(0, wait - spent)
            taken = self._taken(take, max_messages, wait)
        finally:
            self._subscriptions.poll_ends()
        if self._hooks:
            self._call_hooks(messages_of(taken), began)
        return taken

    def _taken(
        self, take: Callable[[int, int | None], _Taken], max_messages: int, wait: int | None
    ) -> _Taken:
        """Take messages, after the callbacks that are due."""
        if self._rebalances is None:
            return take(max_messages, wait)
        due = None if wait is None else monotonic() + wait / 1000
        while True:
            time = None if due is None else due - monotonic()
            failure = self._rebalances.before_poll(self, time)
            if failure is not None:
                _log.warning("group %s: %s", self._group, failure)
            left = None if due is None else max(0, round((due - monotonic()) * 1000))
            taken = take(max_messages, left)
            if len(taken) or left == 0:
                return taken

    def _is_polled_closely(self) -> bool:
        """Whether a poll does more than take messages."""
        has_limit = self._options.max_poll_interval is not None
        return bool(self._hooks) or has_limit or self._rebalances is not None

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Yield messages one by one, without end. A message is done when the next is requested."""
        poll = self.poll if self._is_polled_closely() else self._core.poll
        while not self._closed:
            yield from poll(1, None)

    def seek(self, queue: QueueId, offset: int | Literal["first", "last"] | datetime) -> None:
        """Continue at another offset of an assigned queue.

        Args:
            queue: The queue.
            offset: An offset, ``"first"``, ``"last"``, or a time at which messages were stored.

        Raises:
            ConfigError: The queue is not assigned to this consumer.
            RouteError: Its master is down. A slave may lack messages, so only a numeric offset can
                be used.
            RmqError: The broker did not answer with the offset.

        Example:
            >>> consumer.seek(queue, "first")  # doctest: +SKIP
        """
        if not isinstance(offset, int):
            (offset,) = self._control.offsets([queue], *start_of(offset), True)
        self._core.seek(queue, offset)

    def commit(self, offsets: Mapping[QueueId, int] | None = None) -> None:
        """Commit everything that was returned, at all brokers at the same time.

        If it raises nothing, the brokers have confirmed these and all earlier commits.

        Args:
            offsets: Commit these offsets instead, each that of its queue's next message.

        Raises:
            ConfigError: An offset is not a whole number from 0 to 2**63 - 1; nothing is committed.
            CommitError: Some brokers refused or did not answer within 3 s, or queues have gone to
                another member with messages that were returned and not committed. It lists these
                queues; all others are committed.

        Example:
            >>> consumer.commit()  # doctest: +SKIP
        """
        if offsets is None:
            self._control.commit()
        else:
            self._control.commit_offsets(committable(offsets))
        self._offset_file.write()

    def committed(self, queue: QueueId) -> int | None:
        """Request the group's committed offset in a queue.

        Returns:
            The offset of its next message; None if it has not committed one.

        Example:
            >>> consumer.committed(queue)  # doctest: +SKIP
            42
        """
        (offset,) = self._control.offsets([queue], "committed", 0)
        return None if offset < 0 else offset

    def bounds(self, queue: QueueId) -> tuple[int, int]:
        """Request a queue's first offset and the one that its next message will get.

        Example:
            >>> consumer.bounds(queue)  # doctest: +SKIP
            (0, 336776)
        """
        offsets = self.offsets([queue])[queue]
        return offsets.first, offsets.last

    def offsets(self, queues: Iterable[QueueId] | None = None) -> dict[QueueId, QueueOffsets]:
        """Request the bounds of queues and the group's committed offsets, all at the same time.

        Args:
            queues: Queues, assigned or not. Default: the assigned ones.

        Raises:
            RmqError: A broker did not answer.

        Example:
            >>> sum(each.lag for each in consumer.offsets().values())  # doctest: +SKIP
            336776
        """
        wanted = self.assignment() if queues is None else [*queues]
        columns = [self._control.offsets([*wanted], which, 0) for which in WHICH]
        return offsets_of(wanted, columns)

    def close(self, *, all_done: bool = True) -> None:
        """Commit, leave the group and close every connection. A second call does nothing.

        A call that Ctrl-C interrupts is finished in the background; a second one waits for that.

        `on_revoked` is called first. If it raises, so does this call once the consumer is closed.

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
            if self._is_interrupted:
                self._control.shut(all_done)
            return
        self._closed = True
        self._finalizer.detach()
        failure: CommitError | None = None
        try:
            if self._rebalances is not None:
                failure = self._rebalances.retire(self, None, all_done=all_done)
        finally:
            self._shut(all_done=all_done)
        if failure is not None:
            raise failure

    def _shut(self, *, all_done: bool) -> None:
        try:
            self._control.shut(all_done)
        except BaseException as error:
            self._is_interrupted = not isinstance(error, Exception)
            raise
        finally:
            try:
                self._end_parts()
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
        except Exception:
            if kind is None:
                raise
            _log.exception("group %s: `on_revoked` failed at the end", self._group)

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._core.positions())} queues"
        return f"<PullConsumer group={self._group!r}, {state}>"
