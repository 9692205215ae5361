"""The producer for asyncio."""

import asyncio
import logging
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Self, cast

from pyrmq import _core
from pyrmq._client import PLAIN, Extras, milliseconds, name_servers, queue_of
from pyrmq.aio.outcomes import Outcomes
from pyrmq.errors import BatchSendError, QueueFull, RmqError
from pyrmq.message import Body, Message, QueueId, SendResult

__all__ = ["Producer"]

_log = logging.getLogger("pyrmq.aio.producer")
_ROOM_AGAIN = 0.001


class Producer:
    """Sends messages from one event loop. The arguments are those of :class:`pyrmq.Producer`.

    Example:
        >>> async def main() -> None:
        ...     async with Producer(name_server="127.0.0.1:9876", group="shop") as producer:
        ...         print(await producer.send("orders", b"two coffees"))
    """

    def __init__(
        self,
        *,
        name_server: str | Sequence[str] | None = None,
        group: str = "pyrmq_producer",
        instance_name: str = "",
        send_timeout: float = 3.0,
        retries: int = 2,
        retry_not_stored_ok: bool = False,
        compress_over_bytes: int | None = 4096,
        compress_level: int = 5,
        max_message_bytes: int = 4 * 1024 * 1024,
        default_queues: int = 4,
        create_topic_key: str = "TBW102",
        latency_fault: bool = False,
        max_in_flight: int = 32_768,
        max_in_flight_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        self._core = _core.Producer(
            name_servers(name_server),
            group,
            instance_name=instance_name,
            send_timeout_ms=milliseconds("send_timeout", send_timeout),
            retries=retries,
            retry_not_stored_ok=retry_not_stored_ok,
            compress_over_bytes=compress_over_bytes,
            compress_level=compress_level,
            max_message_bytes=max_message_bytes,
            default_queues=default_queues,
            create_topic_key=create_topic_key,
            latency_fault=latency_fault,
            max_in_flight=max_in_flight,
            max_in_flight_bytes=max_in_flight_bytes,
        )
        self._group = group
        self._send_timeout = send_timeout
        self._outcomes = Outcomes()
        self._closed = False
        self._finalizer = weakref.finalize(self, _core.Producer.shut, self._core)

    async def send(
        self,
        topic: str,
        body: Body,
        *,
        keys: str | Sequence[str] | None = None,
        tags: str | None = None,
        properties: Mapping[str, str] | None = None,
        sharding_key: str | None = None,
        delay_level: int = 0,
        flag: int = 0,
        queue: int | QueueId | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the time of the native send
    ) -> SendResult:
        """Send a message; arguments, result and errors of :meth:`pyrmq.Producer.send`.

        A cancelled send may still be stored.

        Example:
            >>> await producer.send("orders", b"tea", keys="order-43")  # doctest: +SKIP
        """
        extras = (
            PLAIN
            if not (keys or tags or properties or sharding_key or delay_level or flag)
            else Extras(keys, tags, properties, sharding_key, delay_level, flag)
        )
        wait = None if timeout is None else milliseconds("timeout", timeout)
        place = queue_of(topic, queue)
        arguments = (False, topic, body, extras, place, wait)
        try:
            sent = self._outcomes.call(self._core.send_to, *arguments)
        except QueueFull:
            sent = await self._when_room(arguments, timeout)
        result: SendResult = await sent
        return result

    async def _when_room(
        self, arguments: tuple[object, ...], seconds: float | None
    ) -> "asyncio.Future[SendResult]":
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self._send_timeout if seconds is None else seconds)
        while True:
            await asyncio.sleep(_ROOM_AGAIN)
            try:
                return self._outcomes.call(self._core.send_to, *arguments)
            except QueueFull:
                if loop.time() >= deadline:
                    raise

    async def send_batch(
        self,
        topic: str,
        messages: Iterable[Body | Message],
        *,
        keys: str | Sequence[str] | None = None,
        tags: str | None = None,
        properties: Mapping[str, str] | None = None,
        sharding_key: str | None = None,
        queue: int | QueueId | None = None,
        batch_bytes: int = 256 * 1024,
        timeout: float | None = None,  # noqa: ASYNC109 - the time of the native send
    ) -> list[SendResult]:
        """Send many messages in few frames; see :meth:`pyrmq.Producer.send_batch`.

        The iterable is read at once; give what fits into memory.

        Example:
            >>> await producer.send_batch("lines", ["a", "b"])  # doctest: +SKIP
        """
        extras = (
            PLAIN
            if not (keys or tags or properties or sharding_key)
            else Extras(keys, tags, properties, sharding_key)
        )
        wait = None if timeout is None else milliseconds("timeout", timeout)
        place = queue_of(topic, queue)
        results: list[SendResult | RmqError] = await self._outcomes.call(
            self._core.send_batch_to, topic, messages, extras, place, batch_bytes, wait
        )
        failed = [result for result in results if isinstance(result, RmqError)]
        if failed:
            raise BatchSendError(topic, results) from failed[0]
        return cast("list[SendResult]", results)

    async def send_oneway(
        self,
        topic: str,
        body: Body,
        *,
        keys: str | Sequence[str] | None = None,
        tags: str | None = None,
        properties: Mapping[str, str] | None = None,
        sharding_key: str | None = None,
        queue: int | QueueId | None = None,
    ) -> None:
        """Send a message that nobody confirms; see :meth:`pyrmq.Producer.send_oneway`.

        Example:
            >>> await producer.send_oneway("metrics", b"42")  # doctest: +SKIP
        """
        extras = Extras(keys, tags, properties, sharding_key)
        place = queue_of(topic, queue)
        await self._outcomes.call(self._core.send_oneway_to, topic, body, extras, place)

    async def flush(self, timeout: float = 10.0) -> bool:  # noqa: ASYNC109 - as the sync form
        """Wait until no message is on its way; False when the time has passed first.

        Example:
            >>> await producer.flush()  # doctest: +SKIP
            True
        """
        wait = milliseconds("timeout", timeout)
        empty: bool = await self._outcomes.call(self._core.flush_to, wait)
        return empty

    async def close(self, timeout: float = 10.0) -> None:  # noqa: ASYNC109 - as the sync form
        """Send what is on its way, then end every connection. A second call does nothing.

        Example:
            >>> await producer.close()  # doctest: +SKIP
        """
        if self._closed:
            return
        self._closed = True
        self._core.close()
        self._finalizer.detach()
        try:
            if not await self.flush(timeout):
                _log.warning(
                    "producer of group %s closed with %d messages unconfirmed after %s s",
                    self._group,
                    self._core.in_flight(),
                    timeout,
                )
            await self._outcomes.call(self._core.shut_to)
        finally:
            self._outcomes.close()

    async def __aenter__(self) -> Self:
        """Give the producer itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the producer."""
        await self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self._core.in_flight()} in flight"
        return f"<aio.Producer group={self._group!r}, {state}>"
