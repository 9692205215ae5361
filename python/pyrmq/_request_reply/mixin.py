"""The methods of requests and replies, for blocking code."""

import time
from concurrent.futures import Future
from typing import Unpack

from pyrmq import _core
from pyrmq._client.values import handle_of, milliseconds
from pyrmq._request_reply.broker_requests import RequestReply
from pyrmq.errors import RequestTimeout
from pyrmq.message import Body, ReceivedMessage, ReplyOptions, RequestOptions, SendResult

__all__ = ["RequestMixin"]


class RequestMixin:
    """The methods of a producer for requests and replies."""

    _core: _core.Producer
    _request_reply: RequestReply

    def request(
        self,
        topic: str,
        body: Body,
        *,
        timeout: float = 3.0,
        **options: Unpack[RequestOptions],
    ) -> ReceivedMessage:
        """Send a message that a consumer answers with :meth:`reply`, and wait for the reply.

        Args:
            topic: Topic.
            body: As for ``send``.
            timeout: Seconds for storing the request and waiting for its reply.
            options: ``keys``, ``tags``, ``properties`` and ``queue``; see
                :class:`pyrmq.message.MessageOptions`.

        Returns:
            The reply.

        Raises:
            RequestTimeout: No reply came in time; the request may have been read.
            RmqError: The request was not stored, as ``send``.

        Example:
            >>> producer.request("prices", b"tea").body  # doctest: +SKIP
            b'2.80'
        """
        wait = max(1, milliseconds("timeout", timeout))
        until = time.monotonic() + wait / 1000
        correlation, future = self._request_reply.request(topic, body, options, wait)
        try:
            return future.result(max(0.0, until - time.monotonic()))
        except TimeoutError as error:
            late = self._request_reply.forget(correlation)
            if late is not None and not isinstance(error, RequestTimeout):
                raise late from None
        # It was completed at the last moment, by the reply or by the timeout.
        return future.result()

    def request_async(
        self,
        topic: str,
        body: Body,
        *,
        timeout: float = 3.0,
        **options: Unpack[RequestOptions],
    ) -> Future[ReceivedMessage]:
        """Send a request, wait until it is stored, and return the future of its reply.

        The arguments and errors are those of :meth:`request`. ``asyncio.wrap_future`` makes the
        future awaitable.

        Example:
            >>> producer.request_async("prices", b"tea").result().body  # doctest: +SKIP
            b'2.80'
        """
        wait = max(1, milliseconds("timeout", timeout))
        return self._request_reply.request(topic, body, options, wait)[1]

    def reply(
        self,
        request: ReceivedMessage,
        body: Body,
        *,
        timeout: float | None = None,
        **options: Unpack[ReplyOptions],
    ) -> SendResult:
        """Answer a request that a consumer has read; its broker passes the answer on.

        Args:
            request: The request, as the consumer got it.
            body: Body of the reply.
            timeout: Seconds for the send. Default: the producer's ``send_timeout``.
            options: ``keys``, ``tags`` and ``properties``; see
                :class:`pyrmq.message.MessageOptions`.

        Returns:
            Where the broker has stored the reply.

        Raises:
            ConfigError: The message is not a request.
            BrokerError: The requester is no longer connected to the broker.
            RmqError: As ``send``.

        Example:
            >>> producer.reply(message, b"2.80")  # doctest: +SKIP
        """
        wait = None if timeout is None else milliseconds("timeout", timeout)
        return self._request_reply.reply(request, body, options, wait)

    def recall(self, topic: str, handle: str) -> str:
        """Recall a message that the timer has not delivered yet.

        Args:
            topic: Topic of the message.
            handle: ``recall_handle`` of the message's result.

        Returns:
            The message's id.

        Raises:
            ConfigError: The handle is invalid.
            RouteError: The broker that has the message cannot be reached.
            BrokerError: The broker refused: it does not allow recalls (PermissionDenied; see
                ``recallMessageEnable``), the message is due, or the broker has no timer.

        Example:
            >>> later = producer.send("orders", b"tea", delay=60)  # doctest: +SKIP
            >>> producer.recall("orders", later.recall_handle)  # doctest: +SKIP
        """
        broker, message_id = handle_of(topic, handle)
        return self._request_reply.core.recall(topic, broker, message_id, handle)
