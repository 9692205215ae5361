"""Options as Spark gives them, read one by one: known names only, each value checked.

Every method that reads a value raises `OptionError`, which names the option and shows the value.
"""

from __future__ import annotations

import difflib
import os
import re
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyrmq._tables.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["LARGEST", "TOPIC_NAME", "OptionValues", "ago", "check_names", "known_only"]

LARGEST = 2**63 - 1
TOPIC_NAME = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")
_SPARKS_OWN = {"checkpointlocation", "queryname"}
_KAFKA = {
    "kafka.bootstrap.servers": "nameServer is the list of the cluster's name servers",
    "kafka.group.id": "it is group",
    "groupidprefix": "it is group",
    "fetchoffset.numretries": "timeoutMs limits the time for tries",
    "fetchoffset.retryintervalms": "timeoutMs limits the time for tries",
    "kafkaconsumer.polltimeoutms": "timeoutMs limits the time for tries",
}
"""Options of Spark's Kafka source, and their counterparts here."""
_REFUSED = {
    "filterpushdown": (
        "filterPushdown",
        "is refused: Spark up to 4.2 answers later queries of a frame or view from the read that it"
        " planned for the conditions of the first one. Narrow the read by tags, sql, queues, and"
        " starting and ending offsets or times",
    ),
}
"""Options that cannot be honoured, and what to use instead; false is accepted."""
_DURATION = re.compile(r"(\d+)\s*(ms|s|m|h)")
_DURATION_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
_AGO = re.compile(r"(\d+)\s*(ms|s|m|h|d)")
_AGO_MS = {**_DURATION_MS, "d": 86_400_000}
_ADDRESS = re.compile(r"(\[[^\]]+\]|[^:;\[\]\s]+):(\d{1,5})")


def ago(text: str | None) -> str | None:
    """Return a time ago (``1h``, ``30m``, ``7d``) in milliseconds since 1970, others as they are.

    Example:
        >>> ago("2026-11-23T12:00:00Z")
        '2026-11-23T12:00:00Z'
    """
    match = None if text is None else _AGO.fullmatch(text)
    if match is None:
        return text
    return str(time.time_ns() // 1_000_000 - int(match[1]) * _AGO_MS[match[2]])


def known_only(
    given: Mapping[str, str],
    known: Mapping[str, tuple[str, str]],
    aliases: Mapping[str, str],
    later: Mapping[str, str],
) -> dict[str, str]:
    """Return the options by their canonical spelling, without Spark's own.

    Args:
        given: names in any case, values as text.
        known: every option's default and meaning.
        aliases: other names, in lower case.
        later: options that are not built yet, in lower case, and what each would do.

    Raises:
        OptionError: an unknown option, or one that is refused or not built yet.
    """
    by_lower = {name.lower(): name for name in known} | dict(aliases)
    found: dict[str, str] = {}
    for written, value in given.items():
        lower = written.lower()
        if lower in _SPARKS_OWN:
            continue
        if lower in _REFUSED:
            if value.strip().lower() == "false":
                continue
            raise OptionError(*_REFUSED[lower])
        if lower in later:
            if lower == "vipchannel" and value.strip().lower() == "false":
                continue
            raise OptionError(written, f"not built yet: {later[lower]}")
        name = by_lower.get(lower)
        if name is None and (lower in _KAFKA or lower.startswith("kafka.")):
            hint = _KAFKA.get(lower, "clients of RocketMQ have no such setting")
            raise OptionError(written, f"is an option of Kafka's: {hint}")
        if name is None:
            near = difflib.get_close_matches(lower, by_lower, n=1, cutoff=0.5)
            hint = (
                f"did you mean {by_lower[near[0]]}?" if near else f"known are: {', '.join(known)}"
            )
            raise OptionError(written, f"unknown, {hint}")
        if name == "path" and "topic" in {by_lower.get(other.lower()) for other in given}:
            raise OptionError("topic", "excludes a topic in load(...): give one of them")
        if name in found:
            raise OptionError(written, f"given twice: it is another name of {name}")
        found[name] = value
    return found


def check_names(topics: Iterable[str], pattern: str) -> None:
    """Check the values of `topic` and `topicPattern`.

    Raises:
        OptionError: a name that no topic can have, or a pattern that is not a regular expression.
    """
    for topic in topics:
        if not TOPIC_NAME.fullmatch(topic):
            raise OptionError("topic", f"not a topic name: {topic!r}")
    try:
        re.compile(pattern)
    except re.error as error:
        raise OptionError(
            "topicPattern", f"not a regular expression: {pattern!r}: {error}"
        ) from error


class OptionValues:
    """Reads options one by one.

    Args:
        given: from `known_only`.
        known: defaults by name.
    """

    def __init__(self, given: dict[str, str], known: Mapping[str, tuple[str, str]]) -> None:
        self.given = given
        self.known = known

    def text(self, name: str) -> str:
        """Return an option as given; empty without it."""
        return self.given.get(name, "").strip()

    def value(self, name: str) -> str:
        """Return an option or its default."""
        return self.text(name) or self.known[name][0]

    def names(self, name: str) -> tuple[str, ...]:
        """Read a comma-separated list."""
        given = (part.strip() for part in self.text(name).split(","))
        return tuple(dict.fromkeys(part for part in given if part))

    def choice(self, name: str, *words: str) -> str:
        """Read one of several words."""
        text = self.value(name).lower()
        if text not in words:
            wanted = f"{', '.join(words[:-1])} or {words[-1]}"
            raise OptionError(name, f"expected {wanted}, found: {text!r}")
        return text

    def number(self, name: str, lowest: int, highest: int = LARGEST) -> int:
        """Read a whole number within bounds."""
        text = self.value(name)
        try:
            number = int(text)
        except ValueError:
            raise OptionError(name, f"expected a whole number, found: {text!r}") from None
        if not lowest <= number <= highest:
            raise OptionError(name, f"must be between {lowest} and {highest}, found: {number}")
        return number

    def flag(self, name: str) -> bool:
        """Read true or false."""
        text = self.value(name).lower()
        if text not in {"true", "false"}:
            raise OptionError(name, f"expected true or false, found: {text!r}")
        return text == "true"

    def duration(self, name: str) -> int:
        """Read a duration in milliseconds."""
        text = self.value(name)
        match = _DURATION.fullmatch(text)
        if match is None:
            raise OptionError(
                name, f"expected a duration such as 500ms, 30s, 15m or 1h, found: {text!r}"
            )
        return int(match[1]) * _DURATION_MS[match[2]]

    def moment(self, name: str) -> int | None:
        """Read a time in milliseconds since 1970; None without one."""
        text = self.text(name)
        if not text:
            return None
        if text.isdecimal():
            return int(text)
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            raise OptionError(name, f"expected milliseconds or ISO 8601, found: {text!r}") from None
        if when.tzinfo is None:
            utc, local = when.replace(tzinfo=UTC), when.astimezone()
            raise OptionError(
                name,
                f"has no time zone: {text!r} could be {utc.isoformat()} or, in this machine's zone,"
                f" {local.isoformat()}; write one of them",
            )
        return round(when.timestamp() * 1000)

    def addresses(self, name: str) -> str:
        """Read `host:port;host:port`; without the option NAMESRV_ADDR is read."""
        text = self.text(name) or os.environ.get("NAMESRV_ADDR", "")
        given = [part.strip() for part in text.split(";") if part.strip()]
        if not given:
            raise OptionError(
                name,
                "is missing: name the cluster's name servers as host:port;host:port, here or in the"
                " environment variable NAMESRV_ADDR of the driver",
            )
        for address in given:
            match = _ADDRESS.fullmatch(address)
            if match is None or not 0 < int(match[2]) < 65536:
                raise OptionError(name, f"expected host:port, found: {address!r}")
        return ";".join(given)
