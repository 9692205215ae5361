"""The consumer that hides messages for a time (Apache ``SimpleConsumer``).

Example:
    >>> from pyrmq import Producer, SimpleConsumer
    >>> def drink(address: str) -> None:
    ...     with SimpleConsumer(name_server=address, group="kitchen") as consumer:
    ...         consumer.subscribe("orders")
    ...         for message in consumer.receive(10, invisible=30.0, wait=5.0):
    ...             print(message.body)
    ...             consumer.ack(message)
"""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Self, Unpack

from pyrmq._client.options.simple import (
    INVISIBLE_S,
    MAX_MESSAGES,
    WAIT_S,
    ConfiguredSimpleConsumer,
    check_acks,
    settled_of,
)
from pyrmq._client.values import milliseconds, topics_of, whole
from pyrmq.consumer.membership import SimpleSubscriptions, filter_of
from pyrmq.consumer.subscriptions import SubscribeCall
from pyrmq.errors import ConfigError, RmqError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyrmq._client.options.simple import MessageOrReceipt, SimpleConsumerArguments
    from pyrmq.message import PoppedMessage

__all__ = ["SimpleConsumer"]


class SimpleConsumer(ConfiguredSimpleConsumer):
    """Receives messages and hides them for a time. One consumer serves any number of threads.

    A message that was received is hidden from the other members of the group until its invisible
    time is over. Acknowledge it within that time, or it is delivered again. Any member may get any
    message: queues are not assigned, so a slow member delays no other, and members come and go
    without a rebalance. Brokers serve this (POP) from 5.0 on.

    A consumer has its own connection to each broker. After a fork the child must make its own
    consumer: the parent's raises :class:`ForkError` there.

    Args:
        name_server: ``host:port;host:port``, or a sequence of ``host:port``. Default: the
            environment variable ``NAMESRV_ADDR``.
        group: Consumer group.
        order: ``"queue"``: the messages of a queue are received in order. The next ones follow only
            when those that were received are acknowledged. If their invisible time ends first, they
            are delivered again (a FIFO group). All members must use the same. Default: ``"none"``.
        start: Where the group begins in a queue that it has never read: ``"first"`` (the oldest
            message that is stored) or ``"last"`` (the newest). A broker takes ``"last"`` for
            ``"first"`` where the queue has its first message near the end of the log (Apache: in
            memory; ours: within 4 GiB). Default: ``"first"``.
        max_tries: Deliveries after the first before a message goes to the topic ``%DLQ%<group>``
            instead of being received. Default: the group's setting on the broker, 16 there.
        instance_name: Distinguishes the consumers of one process for brokers. Default: a name is
            generated.
        namespace: Prefix of the names of group and topics, as for a producer.
        unit_name: The unit that this client belongs to.
        address_server: HTTP address of the list of name servers, as for a producer.
        hooks: See what is received, such as those of :mod:`pyrmq.otel`.
        request_fields: Header fields that are added to each request of this consumer and
            signed with it, such as a tenant's name (Apache: what an ``RPCHook`` adds); at most
            4 KiB.
        credentials: The user that requests are sent as, and its secret. Default: the file that the
            environment variable ``PYRMQ_CREDENTIALS`` names; without it nothing is signed.
        tls: Open connections with TLS. Default: what the credentials file or the environment
            variable ``PYRMQ_TLS`` says; without them plain TCP.

    Raises:
        ConfigError: An option is out of its range, or no name server is given.

    Example:
        >>> consumer = SimpleConsumer(name_server="127.0.0.1:9876", group="kitchen")
        >>> consumer.close()
    """

    def __init__(self, **arguments: Unpack[SimpleConsumerArguments]) -> None:
        super().__init__(**arguments)
        self._subscriptions = SimpleSubscriptions(self._core, self._options.group)

    def subscribe(
        self, topic: str | Iterable[str], tags: str = "*", *, sql: str | None = None
    ) -> None:
        """Receive messages of topics from now on. A topic's new filter replaces the old one.

        A call that Ctrl-C interrupts is undone: its topics are left or get their old filter.

        Args:
            topic: A topic, or several; they must exist.
            tags: ``*`` for all, or tags with ``||`` between them.
            sql: A condition on the messages' properties in place of tags, such as ``"a > 5 AND
                color = 'red'"``; brokers evaluate it (``enablePropertyFilter=true``).

        Raises:
            ConfigError: Tags and a condition are given.
            FilterError: The condition is wrong; `position` says where.
            TopicNotFound: No broker has the topic. Of several, those before it are subscribed to.
            RmqError: A broker refused, or no server answered.

        Example:
            >>> consumer.subscribe("orders", "new || paid")  # doctest: +SKIP
        """
        call = SubscribeCall(*filter_of(tags, sql))
        try:
            self._subscriptions.subscribe(topics_of(topic), call)
        except RmqError:
            raise
        except BaseException:
            if call.before:
                # Otherwise it has only waited for another call, which may take long.
                self._subscriptions.undo(call)
            raise

    def unsubscribe(self, topic: str) -> None:
        """Receive nothing more from a topic. Received messages can still be acknowledged.

        Raises:
            ConfigError: The topic is not subscribed to.

        Example:
            >>> consumer.unsubscribe("orders")  # doctest: +SKIP
        """
        self._subscriptions.forget(topic)
        if not self._core.unsubscribe(topic):
            raise ConfigError(f"topic `{topic}` is not subscribed to")

    def receive(
        self,
        max_messages: int = MAX_MESSAGES,
        invisible: float = INVISIBLE_S,
        wait: float = WAIT_S,
    ) -> list[PoppedMessage]:
        """Return messages of the subscribed topics; wait for the first.

        A message that exceeded `max_tries` becomes a dead letter and is not returned.

        Args:
            max_messages: The maximum to return. A broker returns at most 32 at once.
            invisible: Seconds for which they are hidden from others, from 1 to 43,200. It must be
                enough to handle and acknowledge all of them, unless they are renewed.
            wait: Seconds to wait for the first message; 0 asks the brokers once. All brokers are
                waited on at the same time.

        Returns:
            Messages; an empty list when the time has passed.

        Raises:
            ConfigError: A value is out of its range, or no topic is subscribed to.
            NotSupported: A broker does not serve POP.
            BrokerError: A broker refused for another permanent reason.
            ClosedError: The consumer is closed.

        Example:
            >>> for message in consumer.receive(invisible=30.0):  # doctest: +SKIP
            ...     print(message.body)
            ...     consumer.ack(message)
        """
        whole("max_messages", max_messages, 1)
        began = monotonic()
        messages = self._core.receive(
            max_messages, milliseconds("invisible", invisible), milliseconds("wait", wait)
        )
        if self._hooks and messages:
            self._hooks.received([*messages], began)
        return messages

    def ack(self, messages: MessageOrReceipt | Iterable[MessageOrReceipt]) -> None:
        """Acknowledge messages: they are done, and are not delivered again.

        Several are acknowledged with one request to each broker.

        Args:
            messages: A message that was received or its receipt, or several.

        Raises:
            ReceiptError: The message's time has passed, it was acknowledged or given back before,
                or its broker does not know the receipt. Or the broker answered after that time, or
                never answered a change of it; the message may then be delivered again.
            AckError: Some of several messages failed. It lists them; the others are done.
            RmqError: The broker did not answer: the message may be delivered again.

        Example:
            >>> consumer.ack(consumer.receive())  # doctest: +SKIP
        """
        settled, is_one = settled_of(messages)
        check_acks(settled, is_one, self._core.ack(settled))

    def change_invisible(self, message: MessageOrReceipt, invisible: float) -> None:
        """Hide a message for a new time, counted from now.

        Args:
            message: The message or its receipt.
            invisible: Seconds, up to 43,200; 0 gives it back, to be delivered again at once.

        Raises:
            ConfigError: The time is out of its range.
            ReceiptError: As for :meth:`ack`.
            RmqError: The broker did not answer. It may have changed the time nevertheless, under an
                unknown receipt. The message may then be delivered again though it is acknowledged,
                and :meth:`ack` says so.

        Example:
            >>> consumer.change_invisible(message, 300.0)  # doctest: +SKIP
        """
        self._core.change_invisible(message, milliseconds("invisible", invisible))

    def close(self) -> None:
        """Leave the group and close every connection. A second call does nothing.

        A call that Ctrl-C interrupts is finished in the background; a second one waits for that.
        Messages that were fetched and not returned are given back. Those that were returned and not
        acknowledged are delivered again when their time has passed.

        Example:
            >>> consumer.close()  # doctest: +SKIP
        """
        if self._closed:
            # A close may be in progress.
            self._core.close()
            return
        self._closed = True
        self._finalizer.detach()
        try:
            self._core.close()
        finally:
            self._hooks.failures.report(at_end=True)
            self._unlog()

    def __enter__(self) -> Self:
        """Return the consumer."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the consumer."""
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._core.topics())} topics"
        return f"<SimpleConsumer group={self._options.group!r}, {state}>"
