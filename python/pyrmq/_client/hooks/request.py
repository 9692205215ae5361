"""Hooks of requests, which see each request before it is sent or served, and its answer."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pyrmq._client.hooks.calling import call_each
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["HookedRequest", "RequestHook", "RequestHooks"]

_Answer = TypeVar("_Answer")


class HookedRequest:
    """A request as hooks see it.

    Attributes:
        address: The server's address on a client, the client's address on a server.
        code: Request code.
        fields: The header's fields. What a hook of a client adds or changes here is sent, and
            signed if requests are. A server's handler does not see changes.
        body: The body, or None.
        notes: Values that a hook stores before the request and reads after it.

    Example:
        >>> HookedRequest("127.0.0.1:9876", 105, {"topic": "orders"})
        HookedRequest(code=105, address='127.0.0.1:9876')
    """

    __slots__ = ("address", "body", "code", "fields", "notes")

    def __init__(
        self,
        address: str,
        code: int,
        fields: Mapping[str, Any] | None = None,
        body: object = None,
    ) -> None:
        self.address = address
        self.code = code
        self.fields: dict[str, Any] = dict(fields) if fields else {}
        self.body = body
        self.notes: dict[object, Any] = {}

    def __repr__(self) -> str:
        # No field and no body: either may be a secret.
        return f"HookedRequest(code={self.code}, address={self.address!r})"


class RequestHook:
    """Sees requests of a client, or those that a server answers in Python. Override what you need.

    Apache's ``RPCHook``. A hook is called by each thread that sends or serves, possibly by several
    at once.

    Example:
        >>> class Tenant(RequestHook):
        ...     def before_request(self, request):
        ...         request.fields["tenant"] = "kitchen"
    """

    def before_request(self, request: HookedRequest) -> None:
        """Called before a request is signed and sent, or before a server's handler gets it.

        An exception refuses the request: a client's call raises it, a server answers with code and
        remark of a `Refused`, and SYSTEM_ERROR for others.

        Example:
            >>> RequestHook().before_request(HookedRequest("127.0.0.1:9876", 105))
        """

    def after_response(
        self,
        request: HookedRequest,
        error: BaseException | None,
        response: Any,  # noqa: ANN401 - by side
    ) -> None:
        """Called once for each request whose ``before_request`` returned.

        Exceptions are logged. A client's call raises KeyboardInterrupt and SystemExit when all
        hooks were called; a server continues.

        Args:
            request: The object that ``before_request`` got.
            error: Why there is no answer; on a server the handler's exception. Otherwise None.
            response: The answer, with any code: a `Command` on a client, a `Response` on a
                server, which has sent it. None after an error.

        Example:
            >>> RequestHook().after_response(HookedRequest("127.0.0.1:9876", 105), None, None)
        """


class RequestHooks:
    """The hooks of one client or server, called in order before and in reverse order after.

    Example:
        >>> RequestHooks([RequestHook()]).call(HookedRequest("", 0), lambda: "answer")
        'answer'
    """

    def __init__(self, hooks: Iterable[RequestHook] = ()) -> None:
        self._hooks: tuple[RequestHook, ...] = ()
        for hook in hooks:
            self.add(hook)

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def add(self, hook: RequestHook) -> None:
        """Add a hook after the others.

        Raises:
            ConfigError: It is not a `RequestHook`.

        Example:
            >>> RequestHooks().add(RequestHook())
        """
        if not isinstance(hook, RequestHook):
            raise ConfigError(
                f"a request hook is of type {type(hook).__name__}: make it a subclass of "
                "RequestHook"
            )
        self._hooks = (*self._hooks, hook)

    def call(self, request: HookedRequest, call: Callable[[], _Answer]) -> _Answer:
        """Make a call between the hooks; return, or raise, what it does."""
        called = self.before(request)
        try:
            response = call()
        except BaseException as error:
            self.after(called, request, error, None)
            raise
        self.after(called, request, None, response)
        return response

    def before(self, request: HookedRequest) -> tuple[RequestHook, ...]:
        """Call the hooks before a request; return those that are to be called after it."""
        for number, hook in enumerate(self._hooks):
            try:
                hook.before_request(request)
            except BaseException as error:
                self.after(self._hooks[:number], request, error, None)
                raise
        return self._hooks

    def after(
        self,
        called: tuple[RequestHook, ...],
        request: HookedRequest,
        error: BaseException | None,
        response: object,
    ) -> None:
        """Call the hooks with an outcome, each of them even if others raise.

        Raises:
            KeyboardInterrupt, SystemExit: The last that a hook raised.
        """
        calls = (
            partial(hook.after_response, request, error, response) for hook in reversed(called)
        )
        call_each(calls, _report)


def _report(raised: BaseException) -> None:
    from pyrmq._client import log

    log.get("pyrmq.remoting").error("a request hook raised %r", raised, exc_info=raised)
