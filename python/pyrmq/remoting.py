"""RocketMQ's wire protocol by itself: commands, batches, message ids, and a client for any request.

Example:
    >>> request = Command(105, {"topic": "orders"})
    >>> frame = request.encode()
    >>> decoded, used = Command.decode(frame)
    >>> decoded.fields, used == len(frame)
    ({'topic': 'orders'}, True)
"""

from collections.abc import Mapping, Sequence
from typing import Self

from pyrmq import _core
from pyrmq._client.hooks.request import HookedRequest as HookedRequest
from pyrmq._client.hooks.request import RequestHook as RequestHook
from pyrmq._client.hooks.request import RequestHooks
from pyrmq._client.security.credentials import Credentials
from pyrmq._client.security.effective import native_security
from pyrmq._client.security.tls import Tls
from pyrmq._core import Command as Command
from pyrmq.codes import RequestCode, ResponseCode
from pyrmq.errors import BrokerError, for_code
from pyrmq.message import Body

__all__ = ["Client", "Command", "HookedRequest", "RequestHook", "answer_error"]


class Client:
    """Sends any request to name servers and brokers, with one connection per address.

    Args:
        connect_timeout: Seconds to wait for a connection.
        shared: Share the connections of this process's producers and consumers, and their
            ``connect_timeout`` (3 s). False: use separate connections.
        credentials: The user that requests are sent as, and its secret. Default: the file that the
            environment variable ``PYRMQ_CREDENTIALS`` names; without it requests are not signed.
        tls: Open connections with TLS. Default: what the credentials file or the environment
            variable ``PYRMQ_TLS`` says; without them plain TCP.
        hooks: Called before and after each request, in the calling thread.

    Example:
        >>> with Client() as client:  # doctest: +SKIP
        ...     client.request("127.0.0.1:9876", 206).body
    """

    def __init__(
        self,
        connect_timeout: float = 3.0,
        *,
        shared: bool = False,
        credentials: Credentials | None = None,
        tls: Tls | None = None,
        hooks: Sequence[RequestHook] = (),
    ) -> None:
        self._hooks = RequestHooks(hooks)
        self._core = _core.Connections(
            connect_timeout_ms=max(1, round(connect_timeout * 1000)),
            shared=shared,
            **native_security(credentials, tls),
        )

    def request(
        self,
        address: str,
        code: int,
        fields: Mapping[str, str | int | bool | None] | None = None,
        body: Body | None = None,
        *,
        timeout: float = 3.0,
    ) -> Command:
        """Send a request and wait for the answer, whatever its code.

        Args:
            address: ``host:port``.
            code: Request code (:class:`pyrmq.codes.RequestCode`).
            fields: Header fields; None is left out.
            body: Body.
            timeout: Seconds to wait for the answer.

        Returns:
            The answer; ``code`` 0 is success.

        Raises:
            ConnectionLost: No connection, or it ended before the answer arrived.
            RequestTimeout: No answer in time.
            ForkError: The client belongs to the parent process.
            Exception: Raised by a hook before the request; nothing was sent.

        Example:
            >>> client.request("127.0.0.1:9876", 105, {"topic": "orders"})  # doctest: +SKIP
        """
        wait_ms = max(1, round(timeout * 1000))
        if not self._hooks:
            command = Command(int(code), None if fields is None else dict(fields), body)
            return self._core.request(address, command, wait_ms)
        hooked = HookedRequest(address, int(code), fields, body)

        def send() -> Command:
            command = Command(hooked.code, hooked.fields, body)
            return self._core.request(address, command, wait_ms)

        return self._hooks.call(hooked, send)

    def ask(
        self,
        address: str,
        code: int,
        fields: Mapping[str, str | int | bool | None] | None = None,
        body: Body | None = None,
        *,
        timeout: float = 3.0,
    ) -> Command:
        """Send a request; raise an answer other than success. Arguments of :meth:`request`.

        Raises:
            BrokerError: The answer's code is not 0; the subclass depends on it.

        Example:
            >>> client.ask("127.0.0.1:9876", 105, {"topic": "no such"})  # doctest: +SKIP
            Traceback (most recent call last):
            pyrmq.errors.TopicNotFound: 127.0.0.1:9876 answered GET_ROUTEINFO_BY_TOPIC ...
        """
        answer = self.request(address, code, fields, body, timeout=timeout)
        if answer.code != ResponseCode.SUCCESS:
            raise answer_error(address, code, answer)
        return answer

    def close(self) -> None:
        """Close every connection that is not shared, and fail requests that wait for an answer.

        Example:
            >>> Client().close()
        """
        self._core.close()

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the client."""
        self.close()


def answer_error(address: str, code: int, answer: Command) -> BrokerError:
    """Make the error for an answer other than success.

    Args:
        address: The server that answered.
        code: The request's code.
        answer: The answer.

    Returns:
        The error to raise.

    Example:
        >>> answer_error("127.0.0.1:9876", 105, Command(17, remark="no route")).code
        17
    """
    request = _name(RequestCode, code)
    name = _name(ResponseCode, answer.code)
    remark = answer.remark or ""
    return for_code(answer.code)(
        f"{address} answered {request} with {name} ({answer.code}): {remark}",
        code=answer.code,
        remark=remark,
        address=address,
    )


def _name(enum: type[RequestCode | ResponseCode], code: int) -> str:
    try:
        return enum(code).name
    except ValueError:
        return "an unknown code"
