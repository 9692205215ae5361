"""Runs one load of one client library: `python -m benches.e2e.rivals.load`.

Arguments: load, address, messages, bytes of a body. Prints one JSON object: messages a second (or
the median in microseconds of a message at a time), this process's CPU seconds for a million
messages, and its largest resident memory in MiB; of a load that sends on a schedule also its
latencies, as `benches.open_loop` summarizes them.
"""

from __future__ import annotations

import json
import resource
import sys
from typing import TYPE_CHECKING, Any

from benches.e2e.rivals import latency, receiving, sending
from benches.open_loop import OpenLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from benches.e2e.rivals.common import Outcome

LOADS: dict[str, Callable[[str, int, bytes], Outcome]] = {
    **sending.LOADS,
    **receiving.LOADS,
    **latency.LOADS,
}


def main() -> None:
    """Run the load and print its figures."""
    name, address, count, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    (wall, cpu), figure = LOADS[name](address, count, b"x" * size)
    out: dict[str, Any] = {
        "cpu_us": cpu * 1e6 / count,
        "resident_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    if isinstance(figure, OpenLoop):
        out["latency"] = figure.summary()
        out["figure"] = out["latency"][figure.figure]
    else:
        out["figure"] = figure or count / wall
    print(json.dumps(out))


if __name__ == "__main__":
    main()
