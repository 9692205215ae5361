"""A request that waits for its reply, and the target of the reply to a request."""

import time
from concurrent.futures import Future

from pyrmq._names import Property, reply_topic
from pyrmq.errors import ConfigError, RequestTimeout
from pyrmq.message import ReceivedMessage, SendResult

__all__ = ["Waiting", "left_of", "reply_address"]


class Waiting:
    """A request that has no reply yet."""

    def __init__(self, timeout_ms: int, future: Future[ReceivedMessage]) -> None:
        self.timeout_ms = timeout_ms
        self.until = time.monotonic() + timeout_ms / 1000
        self.future = future
        self.result: SendResult | None = None

    def late(self) -> RequestTimeout:
        """The error if no reply came."""
        stored = self.result
        if stored is None:
            return RequestTimeout(
                f"no reply came in {self.timeout_ms} ms; whether the request is stored is unknown",
                may_exist=True,
            )
        return RequestTimeout(
            f"no reply came in {self.timeout_ms} ms to message {stored.message_id} for topic "
            f"`{stored.topic}`; the request is stored in queue {stored.queue_id} of broker "
            f"{stored.broker}, and may have been read",
            topic=stored.topic,
            broker=stored.broker,
            queue_id=stored.queue_id,
            message_id=stored.message_id,
            may_exist=True,
            attempts=stored.failed_attempts,
        )


def left_of(until: float) -> int:
    """Whole milliseconds until then, at least one."""
    return max(1, round((until - time.monotonic()) * 1000))


def reply_address(
    request: ReceivedMessage,
) -> tuple[str, list[tuple[str, str]], tuple[str, int] | None]:
    """Topic, properties and queue of the reply to a request."""
    properties = request.properties
    missing = [
        name
        for name in (Property.CORRELATION_ID, Property.REPLY_TO_CLIENT, Property.CLUSTER)
        if not properties.get(name)
    ]
    if missing:
        raise ConfigError(f"{request!r} is not a request: it has no {' and no '.join(missing)}")
    system = [(Property.MSG_TYPE, "reply")]
    system += [
        (name, properties[name])
        for name in (Property.CORRELATION_ID, Property.REPLY_TO_CLIENT, Property.TTL)
        if properties.get(name)
    ]
    # The requester is connected to the broker of its request.
    queue = (request.broker, 0) if request.broker else None
    return reply_topic(properties[Property.CLUSTER]), system, queue
