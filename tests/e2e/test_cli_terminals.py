"""Each command on a narrow and on a wide terminal, into a pipe, and with `--json`."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.e2e.terminals import WIPE, environment, on_a_terminal
from tests.e2e.wire import await_true
from tests.verbs import verbs

from pyrmq import Admin, Producer, PullConsumer
from pyrmq.cli.output import columns_of
from pyrmq.message import QueueId
from pyrmq.testing import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC = "a-topic-whose-name-is-longer-than-a-narrow-terminal-is-wide"
GROUP = "a-group-whose-name-is-longer-than-a-narrow-terminal-is-wide"
BODY = "two coffees, 一杯のお茶 " * 10
WIDTHS = {"narrow": 40, "wide": 100}
MODES = (*WIDTHS, "pipe", "json")

COMMANDS = {
    "nameserver": "-p",
    "broker": "-p",
    "server": "-p",
    "nameserver status": "--interval 0.05",
    "broker status": "--interval 0.05",
    "broker config get": "",
    "broker config set": "fileReservedTime=71",
    "broker drain": "--broker broker-b --back",
    "secure init": "{folder}/secure",
    "secure user": "{folder}/secure viewer --role read-only",
    "send": "{topic} tea --queue 0",
    "tail": "{topic} --from first --stop",
    "message show": "{id} --topic {topic}",
    "message query": "{topic} order-1",
    "message track": "{id} --topic {topic}",
    "message trace": "{id}",
    "topic list": "",
    "topic create": "made-{mode} --queues 1",
    "topic describe": "{topic}",
    "topic delete": "made-{mode}",
    "group list": "",
    "group describe": "{group}",
    "group lag": "{group}",
    "group seek": "gone-{mode} {topic} first",
    "group mode": "{group} {topic}",
    "group delete": "gone-{mode}",
    "dlq list": "{group}",
    "dlq resend": "{group} --max 1",
    "doctor": "--topic {topic} --group {group}",
    "debug bundle": "{folder}/bundle.tar.gz",
    "export": "{topic} {folder}/rows.parquet",
    "import": "{folder}/rows.parquet made-by-import",
    "pipeline init": "lake",
    "pipeline status": "{pipeline}",
    "log inspect": "{store}",
    "log verify": "{store}",
    "log export": "{store} --count 3",
    "log repair": "{store}",
    "store usage": "{store}",
    "store snapshot": "{store} {folder}/kept",
    "store restore": "{folder}/kept {folder}/again",
    "completion": "bash",
    "bench": "produce --count 100 --topic made-by-bench",
}
"""The arguments of each command, in an order in which they can follow each other."""
ELSEWHERE = {
    "dashboard": "runs until Ctrl-C: test_dashboard.py",
    "secure export": "needs a broker with users: test_secure_users.py",
    "secure import": "needs a broker with users: test_secure_users.py",
    "query": "starts a JVM: tests/spark/test_query.py",
    "spark": "starts a JVM: tests/spark/test_query.py",
    "pipeline check": "starts a JVM: tests/spark/test_pipelines.py",
    "pipeline run": "starts a JVM: tests/spark/test_pipelines.py",
}
SERVERS = {"nameserver", "broker", "server"}
LOCAL = ("secure", "log", "store", "pipeline", "completion")
"""Commands of directories and files; they take no name server, and neither do servers."""
IN_FULL = {"tail", "message show", "log export", "pipeline init", "completion"}
"""What these print is no table: bodies, or a file."""
NOTHING_TO_TELL = {"broker drain", "doctor", "log verify", "log repair"}
"""Commands that report problems: without any they print no object."""
NO_JSON = {"completion"}

RUN = """
import json, sys, traceback
from pyrmq.cli import main

for words in json.loads(sys.argv[1]):
    try:
        status = main(words)
    except BaseException:
        traceback.print_exc()
        status = -1
    sys.stderr.flush()
    print(f"\\0{status}", flush=True)
"""
"""Runs commands one after the other; a NUL and the exit status follow the output of each."""


class Printed(NamedTuple):
    """What a command printed: on a terminal, all of it."""

    status: int
    output: str
    errors: str = ""


class Site(NamedTuple):
    """A cluster with something to show for each command."""

    running: Cluster
    message_id: str

    def arguments(self, verb: str, mode: str, folder: Path) -> list[str]:
        """Return the words of a command."""
        pipeline = folder / "shop.toml"
        filled = COMMANDS[verb].format(
            topic=TOPIC,
            group=GROUP,
            id=self.message_id,
            mode=mode,
            folder=folder,
            store=self.running.store,
            pipeline=pipeline,
        )
        words = [*verb.split(), *filled.split()]
        if verb not in SERVERS and not verb.startswith(LOCAL):
            words += ["-n", self.running.name_server]
        return words + (["--json"] if mode == "json" and verb not in NO_JSON else [])


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with ExitStack() as stack:
        running = stack.enter_context(cluster(brokers=2))
        address = running.name_server
        with Admin(name_server=address) as admin:
            for topic in (TOPIC, "made-by-import", f"%DLQ%{GROUP}"):
                admin.create_topic(topic, queues=1)
            with Producer(name_server=address, trace=True) as producer:
                queue = QueueId(TOPIC, "broker-a", 0)
                keys = ["order-1", "k" * 50]
                sent = producer.send(TOPIC, BODY, keys=keys, tags="t" * 50, queue=queue)
                producer.send_batch(f"%DLQ%{GROUP}", [BODY] * 3)
            await_true(lambda: bool(admin.trace_message(sent.message_id)), 20)
        # The first one stays, as a member to show.
        begin(stack.enter_context(PullConsumer(name_server=address, group=GROUP, start="first")))
        for mode in MODES:
            with PullConsumer(name_server=address, group=f"gone-{mode}", start="first") as gone:
                begin(gone)
        yield Site(running, sent.message_id)


def begin(consumer: PullConsumer) -> None:
    """Read something, so that the brokers know the group."""
    consumer.subscribe(TOPIC)
    await_true(lambda: bool(consumer.poll(timeout=1)), 20)
    consumer.commit()


@pytest.fixture(scope="module", params=MODES)
def printed(
    request: pytest.FixtureRequest, site: Site, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, dict[str, Printed]]:
    """What each command prints in one of the modes."""
    mode: str = request.param
    folder = tmp_path_factory.mktemp(mode)
    (folder / "shop.toml").write_text(
        f'[source]\nnameServer = "{site.running.name_server}"\ntopic = "{TOPIC}"\n'
        '[sink]\nformat = "parquet"\npath = "rows"\n'
    )
    given = json.dumps([site.arguments(verb, mode, folder) for verb in COMMANDS])
    if mode in WIDTHS:
        output = on_a_terminal(given, columns=WIDTHS[mode], program=("-c", RUN))
        errors = ""
    else:
        done = subprocess.run(
            [sys.executable, "-c", RUN, given],
            capture_output=True,
            encoding="utf-8",
            env=environment(),
            timeout=50,
            check=True,
        )
        output, errors = done.stdout, done.stderr
    found = {}
    for verb in COMMANDS:
        own, _, rest = output.partition("\0")
        status, _, output = rest.partition("\n")
        found[verb] = Printed(int(status), own, errors)
    return mode, found


def test_every_verb_has_its_case() -> None:
    assert sorted(verbs()) == sorted([*COMMANDS, *ELSEWHERE])


@pytest.mark.parametrize("verb", COMMANDS)
def test_a_command_fits_its_terminal_and_pipes_plain_text(
    printed: tuple[str, dict[str, Printed]], verb: str
) -> None:
    mode, found = printed
    status, output, errors = found[verb]
    assert status == 0, output + errors
    assert "Traceback" not in output + errors
    if mode == "json":
        if verb not in NO_JSON:
            objects = [json.loads(line) for line in output.splitlines()]
            assert all(isinstance(one, dict) for one in objects)
            assert objects or verb in NOTHING_TO_TELL
        return
    assert output.strip()
    if mode == "pipe":
        assert not set(output + errors) & {"\x1b", "\r", "\x07"}
    elif verb not in IN_FULL:
        lines = [line for step in output.split(WIPE) for line in step.splitlines()]
        # Text may go on in the next line of the terminal; what has columns must not.
        wide = [line for line in lines if "  " in line.strip() and columns_of(line) > WIDTHS[mode]]
        assert wide == []
