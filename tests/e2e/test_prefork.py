"""Workers of gunicorn and of Celery's prefork pool have producers of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.test_push import make

from pyrmq import PullConsumer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WORKER = """
import atexit
import os
from pyrmq import ForkError, Producer

address, topic = os.environ["NAMESRV_ADDR"], os.environ["TOPIC"]
# The master loads the application, and sends itself.
masters = Producer(name_server=address)
masters.send(topic, f"master {os.getpid()}")
own = None

def connect(*_, **__):
    global own
    own = Producer(name_server=address)
    atexit.register(own.close)

def use():
    try:
        masters.send(topic, "of the master's producer")
    except ForkError as error:
        assert "open a new one there" in str(error), error
    else:
        raise AssertionError("no ForkError")
    own.send(topic, f"worker {os.getpid()}")
    # Leaves when the worker ends.
    own.produce(topic, f"ends {os.getpid()}")
"""

WSGI = """
import worker

def application(_environ, start_response):
    worker.use()
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"sent"]
"""

HOOKS = """
def post_fork(server, _worker):
    import worker

    worker.connect()
"""

TASKS = """
import os
from pathlib import Path
from celery import Celery
from celery.signals import worker_process_init
import worker

folder = Path(__file__).parent / "queue"
folder.mkdir(exist_ok=True)
app = Celery("tasks", broker="filesystem://")
app.conf.broker_transport_options = {
    "data_folder_in": str(folder),
    "data_folder_out": str(folder),
    "control_folder": str(folder / "control"),
}
app.conf.broker_connection_retry_on_startup = False
worker_process_init.connect(worker.connect)

@app.task
def work():
    worker.use()
"""

SEND_TASKS = "import tasks\nfor _ in range(4):\n    tasks.work.delay()\n"


@contextmanager
def serving(
    folder: Path, address: str, topic: str, *words: str
) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """Run a master in a folder; ask it to end, and check that it does so in order."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]),
        "NAMESRV_ADDR": address,
        "TOPIC": topic,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", *words],
        cwd=folder,
        env=environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process, environment
        process.terminate()
        _, rest = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, rest
    assert "Traceback" not in rest, rest


def await_line(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    """Read the log up to a line."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        found = re.search(pattern, line)
        if found is not None:
            return found
    raise AssertionError("".join(lines))


def sent(address: str, topic: str, count: int) -> list[list[str]]:
    """Return the words of each message, sorted; there are `count`."""
    found: list[list[str]] = []
    with PullConsumer(name_server=address, group=f"reads-{topic}") as consumer:
        consumer.subscribe(topic)
        while len(found) < count:
            messages = consumer.poll(timeout=10)
            assert messages, found
            found += [message.body.decode().split() for message in messages]
        assert not consumer.poll(timeout=0.2)
    return sorted(found)


def check(found: list[list[Any]], calls: int) -> None:
    """Check that each call has sent two messages, in a worker."""
    who = {name: [pid for kind, pid in found if kind == name] for name, _ in found}
    assert len(who["master"]) == 1
    assert len(who["worker"]) == len(who["ends"]) == calls
    assert sorted(who["worker"]) == sorted(who["ends"])
    assert not {*who["worker"]} & {*who["master"]}


@pytest.mark.nightly
@pytest.mark.skipif(find_spec("gunicorn") is None, reason="needs gunicorn")
def test_workers_of_gunicorn_have_producers_of_their_own(
    address: str, topic: str, tmp_path: Path
) -> None:
    make(address, topic, [])
    for name, text in (("worker", WORKER), ("wsgi", WSGI), ("hooks", HOOKS)):
        (tmp_path / f"{name}.py").write_text(text)
    # With --preload the master loads the application.
    words = ["gunicorn", "--preload", "--workers", "2", "--bind", "127.0.0.1:0", "--config"]
    with serving(tmp_path, address, topic, *words, "hooks.py", "wsgi:application") as (master, _):
        url = await_line(master, r"Listening at: (http://\S+)")[1]
        for _ in range(8):
            with urllib.request.urlopen(url, timeout=20) as answer:
                assert answer.read() == b"sent"
    check(sent(address, topic, 1 + 2 * 8), 8)


@pytest.mark.nightly
@pytest.mark.skipif(find_spec("celery") is None, reason="needs Celery")
def test_workers_of_celery_have_producers_of_their_own(
    address: str, topic: str, tmp_path: Path
) -> None:
    make(address, topic, [])
    for name, text in (("worker", WORKER), ("tasks", TASKS)):
        (tmp_path / f"{name}.py").write_text(text)
    words = ["celery", "--app", "tasks", "worker", "--pool", "prefork", "--concurrency", "2"]
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "INFO"]
    with serving(tmp_path, address, topic, *words, *quiet) as (master, environment):
        await_line(master, r" ready\.")
        subprocess.run(
            [sys.executable, "-c", SEND_TASKS], cwd=tmp_path, env=environment, check=True
        )
        for _ in range(4):
            await_line(master, r"succeeded in")
    found = sent(address, topic, 2 + 2 * 4)
    # The program that sends tasks has loaded the application, too.
    masters = [one for one in found if one[0] == "master"]
    assert len(masters) == 2
    check([one for one in found if one is not masters[0]], 4)
