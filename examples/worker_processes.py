"""Use producers in worker processes: each process creates its own, after the fork.

    python examples/worker_processes.py                  # starts its own servers
    python examples/worker_processes.py 127.0.0.1:9876   # uses yours

Call `connect` in gunicorn's `post_fork(server, worker)`, in Celery's signal `worker_process_init`,
or as a pool's `initializer`. A producer created before the fork raises `ForkError` in the child.
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
    """Create this process's producer. It connects at the first send."""
    producers[os.getpid()] = Producer(name_server=name_server, group="workers")
    # Send pending messages at exit. Pools end their workers without it: call `send` last there.
    atexit.register(producers[os.getpid()].close)


def work(number: int) -> int:
    """Run a task of a worker."""
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
