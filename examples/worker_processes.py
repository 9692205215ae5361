"""Producers in worker processes: each makes its own, after the fork.

    python examples/worker_processes.py                  # with servers of its own
    python examples/worker_processes.py 127.0.0.1:9876   # with yours

`connect` is what gunicorn calls as `post_fork(server, worker)`, Celery by its signal
`worker_process_init`, and a pool as `initializer`. A producer that was made before the fork raises
`ForkError` in the child.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
from contextlib import ExitStack

from pyrmq import Producer
from pyrmq.testing import cluster

producers: dict[int, Producer] = {}


def connect(name_server: str) -> None:
    """Make this process's producer. Nothing is connected before the first send."""
    producers[os.getpid()] = Producer(name_server=name_server, group="workers")
    # Sends what is gathered. Pools end their workers without it: give `send` the last word there.
    atexit.register(producers[os.getpid()].close)


def work(number: int) -> int:
    """A task of a worker."""
    producers[os.getpid()].send("results", f"task {number}", keys=f"task-{number}")
    return os.getpid()


def main(name_server: str, method: str) -> None:
    context = multiprocessing.get_context(method)
    with context.Pool(2, initializer=connect, initargs=(name_server,)) as pool:
        workers = pool.map(work, range(20), chunksize=1)
    print(f"{len(workers)} tasks done, in this process: {os.getpid() in workers}")


if __name__ == "__main__":
    with ExitStack() as stack:
        address = sys.argv[1] if sys.argv[1:] else stack.enter_context(cluster()).name_server
        main(address, sys.argv[2] if sys.argv[2:] else "spawn")
