"""Requests to servers: how long each is waited for, and which one."""

from __future__ import annotations

import time
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import replace
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

from pyrmq import _core
from pyrmq.codes import ResponseCode
from pyrmq.doctor.network import Dialed, dial
from pyrmq.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyrmq.remoting import Client

__all__ = ["Server", "from_all"]

_Target = TypeVar("_Target")
_Found = TypeVar("_Found")

_AT_ONCE = 32
_MIN_WAIT_S = 4.5
_SIGNAL_S = 0.2
_LEAST_S = 0.05
"""With less time left a request is not sent."""


class Server:
    """Sends requests to one server, and gives up if it hangs.

    A server may answer the first request and then hang. So the time spent on requests without an
    answer is limited for all of them together. Answered requests do not count, so a slow network
    to many members of a group hides nothing.

    Attributes:
        address: Its address.
        unanswered: Why the first request without an answer had none; empty if all had one.
    """

    def __init__(self, client: Client, timeout: float, address: str) -> None:
        self.address = address
        self.unanswered = ""
        self._client = client
        self._timeout = timeout
        self._wait_left = max(timeout, _MIN_WAIT_S)

    def dial(self, code: int) -> Dialed:
        """Send a request; if it is refused, send it again as the user of the environment."""
        dialed = dial(self.address, code, self._timeout)
        if dialed.answer is None or dialed.answer.code == ResponseCode.SUCCESS:
            return dialed
        signed = self.request(code)
        return replace(dialed, answer=signed) if signed.code == ResponseCode.SUCCESS else dialed

    def request(self, code: int, fields: Mapping[str, str] | None = None) -> _core.Command:
        """Send a request; a failure is an answer without body, with a code that no server sends."""
        timeout = min(self._timeout, self._wait_left)
        if timeout < _LEAST_S:
            return _core.Command(-1, {}, None, remark="it did not answer earlier requests")
        began = time.monotonic()
        try:
            return self._client.request(self.address, code, fields, timeout=timeout)
        except RmqError as error:
            self._wait_left -= time.monotonic() - began
            self.unanswered = self.unanswered or str(error)
            return _core.Command(-1, {}, None, remark=str(error))


def from_all(
    kind: str,
    names: Sequence[str],
    servers: Sequence[_Target],
    request: Callable[[_Target], _Found],
    report: Callable[[str], object],
) -> list[_Found]:
    """Query servers at the same time, and report which one is waited for.

    Ctrl-C ends the wait at once: the threads are daemons, which nothing joins, unlike those of an
    executor, and no further request is sent.
    """
    requests: dict[Future[_Found], str] = {Future(): name for name in names}
    left: SimpleQueue[tuple[Future[_Found], _Target]] = SimpleQueue()
    for pair in zip(requests, servers, strict=True):
        left.put(pair)
    for _ in range(min(_AT_ONCE, len(requests))):
        Thread(target=_work, args=(left, request), name="pyrmq-doctor", daemon=True).start()
    missing = set(requests)
    try:
        while missing:
            first = next(name for one, name in requests.items() if one in missing)
            done = len(requests) - len(missing)
            report(f"{kind}s: {done} of {len(requests)} done, waiting for {first}")
            ended: set[Future[_Found]] = set()
            while not ended:
                # A signal that comes just before a wait does not end it.
                ended, missing = wait(missing, _SIGNAL_S, return_when=FIRST_COMPLETED)
    except BaseException:
        for one in missing:
            one.cancel()
        raise
    return [one.result() for one in requests]


def _work(
    left: SimpleQueue[tuple[Future[_Found], _Target]], request: Callable[[_Target], _Found]
) -> None:
    while True:
        try:
            one, server = left.get_nowait()
        except Empty:
            return
        if not one.set_running_or_notify_cancel():
            continue
        try:
            one.set_result(request(server))
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            one.set_exception(error)
