"""Forked children: what the parent opened is refused there, what they open themselves works."""

from __future__ import annotations

import subprocess
import sys
import textwrap

PROGRAM = """
    import os, sys
    from pyrmq import ForkError, Producer, PullConsumer

    address, topic = sys.argv[1:]
    producer = Producer(name_server=address)
    producer.send(topic, b"parent")
    consumer = PullConsumer(name_server=address, group="forks")
    consumer.subscribe(topic)
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            for use in (
                lambda: producer.send(topic, b"x"),
                lambda: producer.send_async(topic, b"x"),
                lambda: producer.send_batch(topic, [b"x"]),
                lambda: consumer.poll(timeout=0),
                lambda: consumer.commit(),
            ):
                try:
                    use()
                except ForkError as error:
                    assert "open a new one there" in str(error), error
                else:
                    raise AssertionError("no ForkError")
            producer.close()
            consumer.close()
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
    assert os.waitpid(child, 0)[1] == 0
    print("parent sent at", producer.send(topic, b"after").status.name)
    producer.close()
    consumer.close()
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


def test_a_child_is_refused_old_handles_and_works_with_new_ones(address: str, topic: str) -> None:
    lines = run(PROGRAM, address, topic).splitlines()
    assert lines == ["child read [b'child', b'parent']", "parent sent at SEND_OK"]


def test_a_multiprocessing_pool_sends_from_its_workers(address: str, topic: str) -> None:
    program = """
        import multiprocessing, sys
        from pyrmq import Producer

        def work(number):
            with Producer(name_server=sys.argv[1]) as producer:
                return producer.send(sys.argv[2], str(number)).status.name

        if __name__ == "__main__":
            with Producer(name_server=sys.argv[1]) as producer:
                producer.send(sys.argv[2], b"parent")
                with multiprocessing.get_context("fork").Pool(2) as pool:
                    print(pool.map(work, range(4)))
    """
    assert run(program, address, topic).strip() == str(["SEND_OK"] * 4)
