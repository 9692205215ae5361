"""Forked children: the parent's clients raise there, their own clients work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from pyrmq import Broker, PullConsumer
from pyrmq.errors import ServerError

PROGRAM = """
    import os, re, sys, threading
    from pathlib import Path
    from pyrmq import ForkError, Producer, PullConsumer, SimpleConsumer

    address, topic, folder = sys.argv[1:]
    producer = Producer(name_server=address)
    producer.send(topic, b"parent")
    consumer = PullConsumer(name_server=address, group="forks")
    consumer.subscribe(topic)
    member = PullConsumer(
        name_server=address, group="all", broadcasting=True, offset_dir=folder, auto_commit=60
    )
    member.subscribe(topic)
    limited = PullConsumer(name_server=address, group="limited", max_poll_interval=60)
    limited.subscribe(topic)
    simple = SimpleConsumer(name_server=address, group="simple")
    simple.subscribe(topic)
    sys.stdout.flush()
    # Another thread has them at the fork.
    locks = limited._subscriptions._lock, limited._subscriptions._changing
    of_simple = simple._subscriptions._changing
    are_held, is_over = threading.Event(), threading.Event()

    def hold():
        with locks[0], locks[1], of_simple:
            are_held.set()
            is_over.wait()

    threading.Thread(target=hold).start()
    are_held.wait()
    child = os.fork()
    if child == 0:
        try:
            for use in (
                lambda: producer.send(topic, b"x"),
                lambda: producer.send_async(topic, b"x"),
                lambda: producer.send_batch(topic, [b"x"]),
                lambda: producer.request(topic, b"x"),
                lambda: producer.request_async(topic, b"x"),
                lambda: consumer.poll(timeout=0),
                lambda: consumer.commit(),
                lambda: consumer.paused(),
                lambda: consumer.assignment(),
                lambda: member.commit(),
                lambda: limited.poll(timeout=0),
                lambda: limited.subscribe(topic),
                lambda: limited.subscribe(re.compile("x")),
                lambda: limited.unsubscribe(topic),
                lambda: simple.subscribe(topic),
            ):
                try:
                    use()
                except ForkError as error:
                    assert "open a new one there" in str(error), error
                else:
                    raise AssertionError("no ForkError")
            producer.close()
            consumer.close()
            member.close()
            limited.close()
            simple.close()
            assert not [*Path(folder).rglob("offsets.json")], "the file is the parent's"
            with Producer(name_server=address) as own:
                own.send(topic, b"child")
            with PullConsumer(name_server=address, group="child") as own:
                own.subscribe(topic)
                bodies = set()
                while len(bodies) < 2:
                    bodies |= {message.body for message in own.poll(timeout=5)}
            print("child read", sorted(bodies), flush=True)
            os._exit(0)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
    is_over.set()
    assert os.waitpid(child, 0)[1] == 0
    print("parent sent at", producer.send(topic, b"after").status.name)
    producer.close()
    consumer.close()
    member.close()
    limited.close()
    simple.close()
    assert [*Path(folder).rglob("offsets.json")]
"""


LISTENERS = """
    import asyncio, inspect, os, sys, time, traceback
    import pyrmq, pyrmq.aio
    from pyrmq import ForkError, Producer

    address, topic, kind = sys.argv[1:]

    def listening(group, seen):
        if kind == "threads":
            consumer = pyrmq.PushConsumer(name_server=address, group=group)

            def note(body: str) -> None:
                seen.append(body)
        else:
            consumer = pyrmq.aio.PushConsumer(name_server=address, group=group)

            async def note(body: str) -> None:
                seen.append(body)

        consumer.subscribe(topic, note)
        return consumer

    async def done(result):
        return await result if inspect.isawaitable(result) else result

    async def await_seen(seen, wanted):
        until = time.monotonic() + 15
        while wanted not in seen:
            assert time.monotonic() < until, seen
            await asyncio.sleep(0.01)

    async def in_child():
        uses = [running.commit, running.assignment, running.stats, imported.start]
        if kind == "asyncio":
            uses += [lambda: parents.send(topic, "x"), polled.poll, simple.receive]
        for use in uses:
            try:
                await done(use())
            except ForkError as error:
                assert "open a new one there" in str(error), error
            else:
                raise AssertionError(f"no ForkError: {use}")
        for client in clients:
            await done(client.close())
            await done(client.close())
        seen = []
        own = listening("own", seen)
        await done(own.start())
        await await_seen(seen, "before")
        await done(own.close())

    # Made where a master of gunicorn or Celery imports it, and one that runs there.
    seen, seen_late = [], []
    imported, running = listening("imported", seen_late), listening("running", seen)
    with Producer(name_server=address) as producer, asyncio.Runner() as runner:
        producer.send(topic, "before")
        if kind == "asyncio":
            parents = pyrmq.aio.Producer(name_server=address)
            polled = pyrmq.aio.PullConsumer(name_server=address, group="polls")
            simple = pyrmq.aio.SimpleConsumer(name_server=address, group="receives")
            for use in (
                lambda: parents.send(topic, "of asyncio"),
                lambda: polled.subscribe(topic),
                polled.poll,
                lambda: simple.subscribe(topic),
                simple.receive,
            ):
                runner.run(done(use()))
        runner.run(done(running.start()))
        runner.run(await_seen(seen, "before"))
        clients = [running, imported]
        if kind == "asyncio":
            clients += [parents, polled, simple]
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            try:
                asyncio.run(in_child())
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        producer.send(topic, "after")
        runner.run(await_seen(seen, "after"))
        runner.run(done(imported.start()))
        runner.run(await_seen(seen_late, "after"))
        if kind == "asyncio":
            # The child has not taken their descriptors out of the loop.
            runner.run(asyncio.wait_for(parents.send(topic, "of asyncio again"), 10))
            for receive in (polled.poll, simple.receive):
                assert runner.run(asyncio.wait_for(receive(), 10))
        for client in clients:
            runner.run(done(client.close()))
    print("the parent goes on")
"""


def run(program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        timeout=25,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_child_is_refused_old_handles_and_works_with_new_ones(
    address: str, topic: str, tmp_path: Path
) -> None:
    lines = run(PROGRAM, address, topic, str(tmp_path)).splitlines()
    assert lines == ["child read [b'child', b'parent']", "parent sent at SEND_OK"]


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_listeners_of_the_parent_are_refused_and_those_of_the_child_work(
    address: str, topic: str, kind: str
) -> None:
    assert run(LISTENERS, address, topic, kind) == "the parent goes on\n"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_multiprocessing_pool_sends_from_its_workers(
    address: str, topic: str, tmp_path: Path, method: str
) -> None:
    # A file, like any program: the start methods with a new interpreter import it again.
    program = tmp_path / "pool.py"
    program.write_text(
        textwrap.dedent("""
            import multiprocessing, sys
            from pyrmq import Producer

            def work(number):
                with Producer(name_server=sys.argv[1]) as producer:
                    return producer.send(sys.argv[2], str(number)).status.name

            if __name__ == "__main__":
                with Producer(name_server=sys.argv[1]) as producer:
                    producer.send(sys.argv[2], b"parent")
                    with multiprocessing.get_context(sys.argv[3]).Pool(2) as pool:
                        print(pool.map(work, range(4)))
                    print(producer.send(sys.argv[2], b"parent again").status.name)
        """)
    )
    done = subprocess.run(
        [sys.executable, str(program), address, topic, method],
        capture_output=True,
        text=True,
        timeout=28,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(["SEND_OK"] * 4), "SEND_OK"]


def test_workers_forked_before_the_first_send_have_producers_of_their_own(
    address: str, topic: str
) -> None:
    """Fork like gunicorn and Celery: the master only imports, and forks repeatedly."""
    program = """
        import os, sys
        import pyrmq
        from pyrmq import Producer

        producer = None

        def send(body):
            global producer
            if producer is None:
                producer = Producer(name_server=sys.argv[1])
            return producer.send(sys.argv[2], body)

        for generation in range(2):
            children = []
            for number in range(3):
                child = os.fork()
                if child == 0:
                    send(f"{generation}-{number}")
                    producer.close()
                    os._exit(0)
                children.append(child)
            assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
        # A master that has a producer may fork on, as long as its children make theirs.
        send("master")
        for number in range(2):
            child = os.fork()
            if child == 0:
                producer = None
                send(f"late-{number}")
                # Ends as a program does: with atexit, and whatever is open.
                sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0
        print(send("master again").status.name)
        producer.close()
    """
    assert run(program, address, topic).strip() == "SEND_OK"
    found: set[bytes] = set()
    with PullConsumer(name_server=address, group=f"{topic}-found") as consumer:
        consumer.subscribe(topic)
        while len(found) < 10:
            messages = consumer.poll(timeout=10)
            assert messages, found
            found |= {message.body for message in messages}
    assert {b"0-0", b"1-2", b"late-0", b"late-1", b"master", b"master again"} <= found


def test_a_fork_while_other_threads_send_harms_neither_side(address: str, topic: str) -> None:
    program = """
        import os, sys, threading
        from pyrmq import Producer

        producer = Producer(name_server=sys.argv[1])
        producer.send(sys.argv[2], b"first")
        ended = threading.Event()

        def work():
            while not ended.is_set():
                producer.send(sys.argv[2], b"x")
                producer.produce(sys.argv[2], b"y")

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            child = os.fork()
            if child == 0:
                # Neither collecting the parent's producer nor making one may hang.
                del producer
                with Producer(name_server=sys.argv[1]) as own:
                    own.send(sys.argv[2], b"child")
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
        ended.set()
        for thread in threads:
            thread.join()
        producer.close()
        print(producer.stats().failed)
    """
    assert run(program, address, topic).strip() == "0"


def test_a_child_that_outlives_a_killed_broker_keeps_its_store_locked(tmp_path: Path) -> None:
    program = """
        import os, sys
        from pyrmq import Broker

        with Broker(listen_port=0, bind_address="127.0.0.1", store_path_root_dir=sys.argv[1]):
            child = os.fork()
            if child != 0:
                print(child, flush=True)
            # Until the test has ended this process.
            sys.stdin.read()
    """
    arguments = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
        try:
            with pytest.raises(ServerError, match="the store is in use by another broker"):
                started(tmp_path)
            # How docs/store.md finds it.
            held = [file.readlink() for file in Path(f"/proc/{child}/fd").iterdir()]
            assert tmp_path / "lock" in held
        finally:
            os.kill(child, signal.SIGKILL)
    # Nobody here can wait for that child.
    deadline = time.monotonic() + 20
    while Path(f"/proc/{child}/fd/0").is_symlink():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    started(tmp_path).stop()


def started(store: Path) -> Broker:
    broker = Broker(listen_port=0, bind_address="127.0.0.1", store_path_root_dir=str(store))
    broker.start()
    return broker
