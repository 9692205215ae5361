"""The rows by name, for `--rows`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benches.e2e.consumers.idle import backlog_rows, idle_rows
from benches.e2e.consumers.many import fan_out_rows, held_rows
from benches.e2e.consumers.sharing import member_rows, takeover_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benches.row import Row

ROWS: dict[str, Callable[[int, float], Iterator[Row]]] = {
    "idle": idle_rows,
    "backlog": backlog_rows,
    "takeover": takeover_rows,
    "members": member_rows,
    "fan-out": fan_out_rows,
    "held": held_rows,
}
"""What `--rows` takes."""


def consumer_rows(names: set[str], rounds: int, scale: float) -> Iterator[Row]:
    """Run the rows of these names; `scale` shortens a smoke run."""
    for name, work in ROWS.items():
        if name in names:
            yield from work(rounds, scale)
