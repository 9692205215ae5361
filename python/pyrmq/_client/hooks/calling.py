"""Calls hooks after an event: all of them, even if one of them raises."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["call_each"]


def call_each(calls: Iterable[Callable[[], None]], report: Callable[[BaseException], None]) -> None:
    """Make all calls; what one raises is reported, and the next is made.

    Raises:
        KeyboardInterrupt, SystemExit: The last that a call raised, after all calls.

    Example:
        >>> call_each([lambda: print("called"), lambda: print("too")], print)
        called
        too
    """
    ending: KeyboardInterrupt | SystemExit | None = None
    for call in calls:
        try:
            call()
        except BaseException as raised:  # noqa: BLE001 - a user's function
            report(raised)
            if isinstance(raised, KeyboardInterrupt | SystemExit):
                ending = raised
    if ending is not None:
        raise ending
