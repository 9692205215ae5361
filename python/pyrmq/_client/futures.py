"""The thread that completes a producer's futures."""

import threading
import time

from pyrmq import _core

__all__ = ["serve_futures"]

_LOOK_AROUND_MS = 200
_AFTER_MAIN_S = 2.0


def serve_futures(gathering: _core.Accumulator, core: _core.Producer) -> None:
    """Complete futures until the producer ends, or what is on its way when the main thread ends."""
    main = threading.main_thread()
    until: float | None = None
    while gathering.serve_futures(_LOOK_AROUND_MS):
        if main.is_alive():
            continue
        if until is None:
            gathering.depart()
            until = time.monotonic() + _AFTER_MAIN_S
        if not core.in_flight() or time.monotonic() >= until:
            return
