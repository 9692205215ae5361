"""Changes by the page: options, dead letters, offsets of groups, topics."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyrmq._client.security.secrets import HIDDEN, is_secret
from pyrmq._names import DLQ_PREFIX
from pyrmq.codes import RequestCode
from pyrmq.dashboard.lists import named
from pyrmq.errors import ConfigError, RmqError
from pyrmq.server.options.properties import decode, parse, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyrmq.dashboard.cluster import Cluster

Tree = dict[str, Any]
_MAX_DIGITS = 20


def _moment(text: str) -> datetime:
    """The time of a text in ms since 1970.

    Example:
        >>> _moment("1000").isoformat()
        '1970-01-01T00:00:01+00:00'
    """
    try:
        if text.isascii() and text.isdigit():
            return datetime.fromtimestamp(int(text[:_MAX_DIGITS]) / 1000, UTC)
    except (OSError, OverflowError, ValueError):
        # After the year 9999.
        pass
    raise ConfigError(
        f"`to` is `{text[:_MAX_DIGITS]}`: it must be first, last, or a time in ms since 1970"
    )


class Changes:
    """Changes of a cluster, and the options that some of them change."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def options(self, broker: str) -> Tree:
        """The options of a running broker; of the first one without a name."""
        masters = self._cluster.masters()
        name = broker or min(masters, default="")
        if name not in masters:
            raise ConfigError(f"no master named `{name}` is registered")
        code = RequestCode.GET_BROKER_CONFIG
        answer = self._cluster.client.ask(masters[name], code, timeout=self._cluster.timeout)
        options = {
            key: HIDDEN if value and is_secret(key) else value
            for key, value in parse(decode(answer.body or b"")).items()
        }
        return {
            "broker": name,
            "brokers": sorted(masters),
            "options": dict(sorted(options.items())),
        }

    def set_option(self, broker: str, key: str, value: str) -> Tree:
        """Change an option of a running broker; the answer has the value in force."""
        if key not in self.options(broker)["options"]:
            raise ConfigError(f"the broker {broker} has no option `{key}`")
        body = write({key: value}).encode()
        code = RequestCode.UPDATE_BROKER_CONFIG
        self._cluster.client.ask(
            self._cluster.masters()[broker], code, None, body, timeout=self._cluster.timeout
        )
        return {"broker": broker, "key": key, "value": self.options(broker)["options"][key]}

    def resend(self, group: str, ids: Sequence[str]) -> Tree:
        """Send dead letters to their group again; return the cause of each failure."""
        failed = {}
        for each in ids:
            try:
                message = self._cluster.reader.message(each, DLQ_PREFIX + group)
                self._cluster.admin.resend_dead_letter(group, message)
            except RmqError as error:
                failed[each] = str(error)
        return {"sent": len(ids) - len(failed), "failed": failed}

    def seek(self, group: str, topic: str, to: str) -> Tree:
        """Move a group to the first or last messages of a topic, or to a time in ms."""
        if to in ("first", "last"):
            moved = self._cluster.admin.reset_offsets(
                group, topic, "first" if to == "first" else "last"
            )
        else:
            moved = self._cluster.admin.reset_offsets(group, topic, _moment(to))
        return {"queues": [{**named(queue), "offset": at} for queue, at in moved.items()]}

    def create_topic(self, topic: str, queues: int) -> Tree:
        """Create a topic on every master, or change the number of its queues."""
        self._cluster.admin.create_topic(topic, queues=queues)
        self._cluster.forget()
        return {"topic": topic, "queues": queues}
