"""The control plane's request codes: the Python functions that answer them, and their threads.

A request for a Python handler waits in a bounded queue of the core (full: SYSTEM_BUSY). A few named
threads pull from it; Rust never calls Python. An exception of a handler becomes a response:
`Refused` with its own code, any other as SYSTEM_ERROR with type and message. No exception, not even
SystemExit, ends a thread. A server's table is fixed while it runs; native handlers cannot be
replaced.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from pyrmq._client.hooks.request import HookedRequest, RequestHook, RequestHooks
from pyrmq.codes import ResponseCode
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyrmq import _core

# No more: a worker's requests wait for a slow handler, even while another worker sleeps.
_BATCH = 1
_WAIT_MS = 600_000
_INT_MAX = 2**31 - 1


class Response(NamedTuple):
    """The answer of a handler.

    Attributes:
        code: response code; 0 is success.
        remark: text for the client, usually of an error.
        fields: the header's fields.
        body: the payload.

    Example:
        >>> Response(body=b'{"topicList":[]}').code == 0
        True
    """

    code: int = ResponseCode.SUCCESS
    remark: str | None = None
    fields: dict[str, str] | None = None
    body: bytes | None = None


class Refused(Exception):
    """Raised in a handler: answer with this code and remark.

    Example:
        >>> raise Refused(22, "no such key")  # doctest: +SKIP
    """

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code


Handler = Callable[["_core.Request"], Response | None]


class Processors:
    """The Python functions that answer request codes on one server.

    Example:
        >>> rows = Processors("broker", native=[10])
        >>> @rows.register(9001)
        ... def answer(request):
        ...     return Response(body=b"pong")
        >>> rows.codes
        [9001]
        >>> rows.register(10, answer)
        Traceback (most recent call last):
        ...
        pyrmq.errors.ConfigError: request code 10 (SEND_MESSAGE) is served natively by the broker...
    """

    def __init__(self, role: str, *, native: Iterable[int]) -> None:
        self._role = role
        self._native = frozenset(native)
        self._handlers: dict[int, Handler] = {}
        self._hooks = RequestHooks()
        self._sealed = False

    @property
    def codes(self) -> list[int]:
        """The codes that have a handler, in ascending order."""
        return sorted(self._handlers)

    def register(self, code: int, handler: Handler | None = None) -> Callable[[Handler], Handler]:
        """Let a function answer a request code; without a function it is a decorator.

        The function gets the request (`code`, `version`, `language`, `remote`, `fields`,
        `get(key)`, `body`) on a worker thread and returns a `Response`, or None
        for an empty success. To refuse it raises `Refused`. It must be safe to call from several
        threads at once.

        Args:
            code: request code; a binary header carries only -32768 to 32767.
            handler: the function.

        Raises:
            ConfigError: the code already has a handler or is out of range, or the server is
                running.
        """
        if handler is None:

            def decorate(function: Handler) -> Handler:
                self.register(code, function)
                return function

            return decorate
        if self._sealed:
            raise ConfigError(
                f"request code {code}: the {self._role} runs and its table is fixed; register "
                "the handler before start()"
            )
        if not -_INT_MAX - 1 <= code <= _INT_MAX:
            raise ConfigError(f"request code is {code}: it must fit 32 bits")
        if code in self._native:
            from pyrmq.codes import RequestCode

            raise ConfigError(
                f"request code {code} ({RequestCode(code).name}) is served natively by the "
                f"{self._role} and cannot be replaced; use a free code"
            )
        if code in self._handlers:
            raise ConfigError(f"request code {code} already has a handler: use a free code")
        self._handlers[code] = handler
        return lambda function: function

    def add(self, handlers: Mapping[int, Handler]) -> None:
        """Add the server's own handlers; a code with a native handler keeps it."""
        for code, handler in handlers.items():
            if code not in self._native:
                self.register(code, handler)

    def add_hook(self, hook: RequestHook) -> None:
        """Call a hook before and after each request that a Python function answers.

        Its calls take a worker's time: native handlers never wait for it, but other requests for
        Python do while all workers are in it. Users and rights are checked before it.

        Args:
            hook: the hook; its ``before_request`` may raise `Refused`.

        Raises:
            ConfigError: it is not a `RequestHook`, or the server is running.

        Example:
            >>> Processors("broker", native=[]).add_hook(RequestHook())
        """
        if self._sealed:
            raise ConfigError(
                f"a request hook cannot be added while the {self._role} runs; add it before start()"
            )
        self._hooks.add(hook)

    def seal(self) -> None:
        """Fix the table, because the server starts."""
        self._sealed = True

    def unseal(self) -> None:
        """Open the table again, because the server has stopped."""
        self._sealed = False

    def answer(self, request: _core.Request) -> None:
        """Call the handler of a request and send its answer."""
        handler = self._handlers[request.code]
        if not self._hooks:
            _answer(request, handler)
            return
        hooked = HookedRequest(request.remote, request.code, request.fields, request.body)
        called: tuple[RequestHook, ...] = ()

        def handle(request: _core.Request) -> Response | None:
            nonlocal called
            called = self._hooks.before(hooked)
            return handler(request)

        response, error = _answer(request, handle)
        with suppress(KeyboardInterrupt, SystemExit):  # Logged, since a worker serves all clients.
            self._hooks.after(called, hooked, error, response)


def _answer(
    request: _core.Request, handler: Handler
) -> tuple[Response | None, BaseException | None]:
    try:
        response = handler(request) or Response()
        request.reply(response.code, response.remark, response.fields, response.body)
    except Refused as refused:
        request.reply(refused.code, str(refused))
        return None, refused
    except BaseException as error:  # noqa: BLE001 - the client waits for a response in any case
        _report(request)
        request.reply(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
        return None, error
    return response, None


def _report(request: _core.Request) -> None:
    # Imported on demand, to keep a server's start short.
    from pyrmq._client import log

    try:
        log.get("pyrmq.server").exception(
            "the handler of request code %d failed, for %s", request.code, request.remote
        )
    except Exception:  # noqa: BLE001 - of a log handler; printed as `logging` prints those
        import logging
        import traceback

        if logging.raiseExceptions:
            traceback.print_exc()


class Workers:
    """The threads that pull a server's requests and answer them.

    Example:
        >>> workers = Workers(queue, processors, name="pyrmq-broker", count=2)  # doctest: +SKIP
        >>> workers.start()  # doctest: +SKIP
    """

    def __init__(
        self, queue: _core.RequestQueue, processors: Processors, *, name: str, count: int
    ) -> None:
        self._queue = queue
        self._processors = processors
        # Daemons, because the interpreter joins other threads before it runs atexit, where a
        # forgotten server stops; a stop joins them itself.
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-worker-{number}", daemon=True)
            for number in range(count)
        ]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self, timeout: float) -> None:
        """Close the queue and wait for the threads, at most `timeout` seconds each."""
        self._queue.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(timeout)

    def _run(self) -> None:
        while True:
            batch = self._queue.take(_BATCH, _WAIT_MS)
            if not batch and self._queue.closed:
                return
            for request in batch:
                try:
                    self._processors.answer(request)
                except BaseException:  # noqa: BLE001 - the other requests need this thread
                    _report(request)
