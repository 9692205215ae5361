"""Times on the command line: read from options, written in tables."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from pyrmq.errors import ConfigError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def moment(text: str) -> datetime:
    """A point in time: an age such as `90s`, `10m`, `2h` or `1d`, or an ISO time.

    A time without a zone is in the user's zone.

    Raises:
        ConfigError: the text is neither.
    """
    age = re.fullmatch(r"(\d+)([smhd])", text)
    if age:
        try:
            return datetime.now(UTC) - timedelta(seconds=int(age[1]) * _UNITS[age[2]])
        except OverflowError as error:
            raise ConfigError(f"`{text}` is before the calendar begins") from error
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError as error:
        raise ConfigError(
            f"`{text}` is not a time: write an age (90s, 10m, 2h, 1d) or 2026-11-23T14:05:00"
        ) from error


def shown(milliseconds: int) -> str | None:
    """A time in the user's zone; None for 0; the number itself if the calendar has no such time.

    Example:
        >>> shown(0) is None
        True
    """
    if milliseconds <= 0:
        return None
    try:
        return datetime.fromtimestamp(milliseconds / 1000).astimezone().isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)
