"""The interface that the parts of `Admin` need, and readers of answers."""

from __future__ import annotations

from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pyrmq import _core
from pyrmq.errors import BrokerError, ConnectionLost, RequestTimeout, RmqError
from pyrmq.message import QueueId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyrmq.remoting import Command

Answer = TypeVar("Answer")
_AT_ONCE = 32


class Requester(Protocol):
    """An administrator's connections and routes."""

    def _request(
        self,
        address: str,
        code: int,
        fields: Mapping[str, str | int | bool | None] | None = None,
        body: bytes | None = None,
    ) -> Command:
        """Send a request; raise an answer other than success."""

    def _version(self, address: str) -> int:
        """The version of a broker, as an ordinal."""

    def _masters(self, cluster: str | None, brokers: Sequence[str] | None) -> list[str]:
        """The addresses of masters."""

    def _masters_of(self, topic: str) -> list[str]:
        """The addresses of the masters that have a topic."""

    def _master_names(self) -> dict[str, str]:
        """The broker name of each master's address."""

    def consumer_groups(self) -> list[str]:
        """The groups that brokers have."""

    def consumer_progress(self, group: str) -> Mapping[QueueId, object]:
        """The committed offsets of a group."""

    def require_group(self, group: str) -> None:
        """Refuse a group that no broker knows."""


def on_each(
    admin: Requester, addresses: Sequence[str], work: Callable[[str], Answer], done: str = ""
) -> dict[str, Answer]:
    """Make calls to several brokers concurrently, so that silent ones cost one timeout together.

    Args:
        admin: The administrator.
        addresses: The brokers.
        work: Called with each address, in threads.
        done: For the error: what was done at the brokers that answered; nothing if empty.

    Returns:
        The answer of each broker.

    Raises:
        RmqError: That of the first broker that refused, else of the first silent one. The text
            names all others that failed, and what was done where.
    """
    if not addresses:
        return {}
    found: dict[str, Answer] = {}
    failed: dict[str, RmqError] = {}
    if len(addresses) == 1:
        # No threads for one broker, as in most tests.
        try:
            return {addresses[0]: work(addresses[0])}
        except RmqError as error:
            failed[addresses[0]] = error
    else:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(_AT_ONCE, len(addresses)), "pyrmq-admin") as threads:
            futures = {address: threads.submit(work, address) for address in addresses}
        for address, future in futures.items():
            try:
                found[address] = future.result()
            except RmqError as error:
                failed[address] = error
    if not failed:
        return found
    raise _joined(admin, failed, f"{done}: " if done else "", [*found])


def _joined(
    admin: Requester, failed: Mapping[str, RmqError], done: str, found: Sequence[str]
) -> RmqError:
    """One error for all brokers that failed."""
    silent = {
        address: error
        for address, error in failed.items()
        if isinstance(error, RequestTimeout | ConnectionLost)
    }
    refused = [address for address in failed if address not in silent]
    if refused and len(failed) == 1 and not (done and found):
        return failed[refused[0]]
    names: dict[str, str] = {}
    # The names only add to the text: an error here must not replace it.
    with suppress(RmqError):
        names = admin._master_names()

    def named(addresses: Iterable[str]) -> str:
        return ", ".join(f"{names.get(one, 'a broker')} ({one})" for one in addresses)

    others = ", ".join(sorted(names.get(one, one) for one in found)) or "none"
    note = f"; {done}{others}" if done else ""
    if refused:
        first = failed[refused[0]]
        joined = copy(first)
        too = f"; {named(refused[1:])} failed, too" if len(refused) > 1 else ""
        missing = f"; no answer from {named(silent)}" if silent else ""
        joined.args = (f"{first}{too}{missing}{note}",)
    else:
        address, unanswered = next(iter(silent.items()))
        first = unanswered
        text = f"no answer from {named(silent)}: {first}{note}"
        joined = type(unanswered)(text, address=address)
    joined.__cause__ = first
    return joined


def body_of(answer: Command) -> dict[Any, Any]:
    """The JSON object in an answer's body."""
    parsed = _core.parse_json(answer.body or b"{}")
    if not isinstance(parsed, dict):
        raise BrokerError("the answer's body is not a JSON object")
    return parsed


def queue_of(name: object) -> QueueId:
    """Read a queue from the name of a member, where Apache writes the queue itself."""
    pairs = dict(name) if isinstance(name, tuple | dict) else {}
    return QueueId(
        str(pairs.get("topic", "")), str(pairs.get("brokerName", "")), int(pairs.get("queueId", -1))
    )
