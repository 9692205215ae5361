"""Start and stop of both servers: repeated, from threads, from signals, at exit, after a fork."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from tests.e2e.wire import Connection, ask, await_true

from pyrmq import Broker, NameServer
from pyrmq.codes import RequestCode
from pyrmq.errors import ClosedError, ConfigError, ForkError
from pyrmq.server.processors import Response

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

HOST = "127.0.0.1"
ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "python")}


def name_server(folder: Path) -> NameServer:
    return NameServer(listen_port=0, bind_address=HOST, kv_config_path=folder / "kvConfig.json")


def broker(folder: Path, **options: object) -> Broker:
    values: dict[str, Any] = {
        "listen_port": 0,
        "bind_address": HOST,
        "broker_ip1": HOST,
        "store_path_root_dir": folder / "store",
        "mapped_file_size_commit_log": 1 << 20,
        "max_hash_slot_num": 100,
        "max_index_num": 400,
        **options,
    }
    return Broker(**values)


@pytest.fixture(params=["name server", "broker"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NameServer | Broker]:
    """A server that is not started yet."""
    made = name_server(tmp_path) if request.param == "name server" else broker(tmp_path)
    yield made
    made.stop(0)


def pyrmq_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("pyrmq")}


def test_health_tells_the_life(server: NameServer | Broker) -> None:
    assert server.health() == {"status": "new"}
    server.start()
    health = server.health()
    assert (health["status"], health["address"]) == ("running", server.address)
    server.stop()
    assert server.health() == {"status": "stopped"}


def test_start_and_stop_may_be_repeated(server: NameServer | Broker) -> None:
    server.stop()
    assert server.start() is server.start()
    server.stop()
    server.stop()
    server.start()
    assert server.health()["status"] == "running"


def test_a_stopped_server_leaves_no_thread_and_no_port(server: NameServer | Broker) -> None:
    before = pyrmq_threads()
    server.start()
    address = server.address
    assert pyrmq_threads() - before
    server.stop()
    # Those of earlier tests may end meanwhile.
    assert not pyrmq_threads() - before
    with pytest.raises(ConnectionRefusedError):
        Connection(address)


def test_a_stopped_server_has_no_address(server: NameServer | Broker) -> None:
    with pytest.raises(ClosedError, match=r"is not running: call start\(\) first"):
        _ = server.address


def test_stop_from_many_threads_stops_once(server: NameServer | Broker) -> None:
    server.start()
    threads = [threading.Thread(target=server.stop) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert server.health() == {"status": "stopped"}


@pytest.mark.parametrize("timeout", [float("inf"), 1e300, -1, float("nan")])
def test_whatever_time_a_stop_is_given_it_ends(server: NameServer | Broker, timeout: float) -> None:
    server.start()
    server.stop(timeout)
    assert server.health() == {"status": "stopped"}


def test_stop_in_a_signal_handler_works(server: NameServer | Broker) -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: server.stop(0))
    try:
        server.start()
        os.kill(os.getpid(), signal.SIGUSR1)
        await_true(lambda: server.health()["status"] == "stopped")
        # Also if the interrupted call is itself a stop.
        server.start()
        timer = threading.Timer(0.0, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        server.stop()
        timer.join()
        assert server.health() == {"status": "stopped"}
    finally:
        signal.signal(signal.SIGUSR1, before)


def _stop_at_line(server: NameServer | Broker, number: int) -> bool:
    """Start and stop, with another stop at the given line of either, as a signal handler would.

    Return False if they have fewer lines.
    """
    codes = {type(server).start.__code__, type(server).stop.__code__}
    left = number

    def trace(frame: FrameType, event: str, _: object) -> Any:  # noqa: ANN401 - itself
        nonlocal left
        if frame.f_code not in codes:
            return None
        if event == "line" and left >= 0:
            left -= 1
            if left < 0:
                server.stop(0)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        server.start()
        server.stop(0)
    finally:
        sys.settrace(before)
    return left < 0


def test_a_stop_may_come_between_any_two_lines_of_a_start_and_a_stop(tmp_path: Path) -> None:
    server = name_server(tmp_path)
    before = pyrmq_threads()
    number = 0
    while _stop_at_line(server, number):
        assert server.health()["status"] in {"new", "stopped"}
        assert not pyrmq_threads() - before
        number += 1
    assert number > 15


def test_a_stop_lets_a_request_under_way_end(tmp_path: Path) -> None:
    server = name_server(tmp_path)
    asked, go = threading.Event(), threading.Event()

    @server.processors.register(9001)
    def slow(request: Any) -> Response:  # noqa: ANN401 - the core's request
        del request
        asked.set()
        go.wait(10)
        return Response(remark="done")

    server.start()
    answers: list[str | None] = []
    address = server.address
    client = threading.Thread(target=lambda: answers.append(ask(address, 9001).remark))
    client.start()
    assert asked.wait(10)
    stopper = threading.Thread(target=server.stop)
    stopper.start()
    await_true(lambda: server.health()["status"] == "stopping")
    go.set()
    client.join(10)
    stopper.join(10)
    assert answers == ["done"]


def test_a_second_stop_without_time_ends_the_drain(tmp_path: Path) -> None:
    server = name_server(tmp_path)
    asked, go = threading.Event(), threading.Event()

    @server.processors.register(9001)
    def slow(request: Any) -> None:  # noqa: ANN401 - the core's request
        del request
        asked.set()
        go.wait(10)

    server.start()
    with Connection(server.address) as connection:
        client = threading.Thread(target=_ask_and_lose, args=(connection,))
        client.start()
        assert asked.wait(10)
        stopper = threading.Thread(target=server.stop, args=(60.0,))
        stopper.start()
        await_true(lambda: server.health()["status"] == "stopping")
        threading.Timer(0.2, go.set).start()
        server.stop(0)
        stopper.join(10)
        client.join(10)
    assert not stopper.is_alive()
    assert server.health() == {"status": "stopped"}


def _ask_and_lose(connection: Connection) -> None:
    with pytest.raises((ConnectionError, AssertionError)):
        assert connection.ask(9001).code != 0


def test_a_forked_child_gets_a_clear_error_and_can_start_its_own(tmp_path: Path) -> None:
    with name_server(tmp_path) as server:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with pytest.raises(ForkError, match="cannot be used in its forked child"):
                    server.health()
                with pytest.raises(ForkError):
                    _ = server.address
                server.stop()
                own = name_server(tmp_path / "own")
                with own:
                    status = 0 if own.health()["status"] == "running" else 2
            finally:
                os._exit(status)
        _, ended = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(ended) == 0
        assert server.health()["status"] == "running"


def test_from_file_takes_apaches_keys_and_overrides(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(
        f"brokerName=broker-b\nlistenPort=0\nbrokerIP1={HOST}\nstorePathRootDir={tmp_path}/s\n"
        "mappedFileSizeCommitLog=1048576\nmaxHashSlotNum=100\nmaxIndexNum=400\n"
    )
    server = Broker.from_file(file, bind_address=HOST, broker_name="broker-c")
    assert server.options.broker_name == "broker-c"
    with server:
        assert server.store == tmp_path / "s"
        assert (tmp_path / "s" / "commitlog").is_dir()


def test_unknown_keywords_are_refused() -> None:
    with pytest.raises(ConfigError, match="`brokr_name` is not an option of the broker: did"):
        Broker(brokr_name="a")


PROGRAM = """
import sys
from pyrmq import NameServer
server = NameServer(listen_port=0, bind_address="127.0.0.1", kv_config_path=sys.argv[1])
server.start()
print(server.address, flush=True)
"""


def test_a_forgotten_server_ends_with_the_interpreter(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "kv.json")],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    assert (done.returncode, done.stderr) == (0, "")


def own_terminal() -> None:
    """Make standard input the controlling terminal of the session; runs in the child."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Process:
    """A `pyrmq` server process that has printed its address; killed at the end of the block."""

    def __init__(
        self,
        *words: str,
        terminal: int | None = None,
        controls: bool = True,
        sighup_handler: signal.Handlers = signal.SIG_DFL,
        shell: Sequence[str] = (),
    ) -> None:
        # If the tests run under nohup, the process would ignore SIGHUP too.
        before = signal.signal(signal.SIGHUP, sighup_handler)
        try:
            self.process = subprocess.Popen(
                [*shell, sys.executable, "-m", "pyrmq", *words, "--json"],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=ENVIRONMENT,
                stdin=terminal,
                start_new_session=terminal is not None,
                preexec_fn=own_terminal if terminal is not None and controls else None,
            )
        finally:
            signal.signal(signal.SIGHUP, before)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"no ready line: {self.process.communicate(timeout=20)[1]}")
        self.ready: dict[str, Any] = json.loads(line)

    def end(self, number: signal.Signals) -> int:
        """Signal the process and return its exit status; it must have logged no error.

        The name server may warn: a broker that stops while it registers is removed with its
        connection.
        """
        status, _ = self.stop(number)
        return status

    def stop(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """As `end`, with what it has logged."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=20)
        assert " ERROR " not in errors
        assert "Traceback" not in errors
        return self.process.returncode, errors

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Kill it if it still runs."""
        self.process.kill()
        self.process.communicate(timeout=20)


@pytest.fixture
def small_store(tmp_path: Path) -> Path:
    """A property file for a small store."""
    file = tmp_path / "broker.conf"
    file.write_text("mappedFileSizeCommitLog=1048576\nmaxHashSlotNum=100\nmaxIndexNum=400\n")
    return file


def server_words(config: Path, store: Path) -> list[str]:
    ports = ["--listen-port", "0", "--name-server-port", "0"]
    return ["server", "-c", str(config), "--store", str(store), *ports]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_stop_the_command_cleanly(
    number: signal.Signals, tmp_path: Path, small_store: Path
) -> None:
    store = tmp_path / "store"
    with Process(*server_words(small_store, store)) as process:
        assert set(process.ready) == {"name_server", "broker", "pid"}
        assert (store / "abort").exists()
        assert process.end(number) == 0
    assert not (store / "abort").exists()


def test_a_terminal_that_goes_away_stops_the_command_cleanly(
    tmp_path: Path, small_store: Path
) -> None:
    store = tmp_path / "store"
    ours, theirs = os.openpty()
    try:
        with Process(*server_words(small_store, store), terminal=theirs) as process:
            os.close(theirs)
            # The hang-up makes the system send SIGHUP, also if there is a property file to read
            # again.
            os.close(ours)
            _, errors = process.process.communicate(timeout=20)
            assert process.process.returncode == 0, errors
            assert "has read" not in errors
    finally:
        for end in (ours, theirs):
            with suppress(OSError):
                os.close(end)
    assert not (store / "abort").exists()


def test_a_server_that_starts_with_hangups_ignored_keeps_ignoring_them(
    tmp_path: Path, small_store: Path
) -> None:
    with Process(
        *server_words(small_store, tmp_path / "store"), sighup_handler=signal.SIG_IGN
    ) as process:
        process.process.send_signal(signal.SIGHUP)
        status, errors = process.stop()
    assert status == 0
    assert "has read" not in errors


def test_a_hangup_of_a_server_in_a_session_of_its_own_makes_it_read_its_file(
    tmp_path: Path, small_store: Path
) -> None:
    """It was started with `setsid`: its standard input is no terminal that controls it."""
    words = server_words(small_store, tmp_path / "store")
    ours, theirs = os.openpty()
    with Process(*words, terminal=theirs, controls=False) as process:
        os.close(theirs)
        os.close(ours)
        process.process.send_signal(signal.SIGHUP)
        assert process.process.stderr is not None
        assert "has read" in process.process.stderr.readline()
        assert process.end(signal.SIGTERM) == 0


SHELL = """
import subprocess, sys
server = subprocess.Popen(sys.argv[1:], stdin=0, process_group=0)
sys.stdin.read()
"""
"""A shell that does not pass hang-ups on to its background jobs, as after `disown`."""


def test_a_server_that_outlives_its_terminal_reads_its_file_at_a_hangup(
    tmp_path: Path, small_store: Path
) -> None:
    words = server_words(small_store, tmp_path / "store")
    ours, theirs = os.openpty()
    with Process(*words, terminal=theirs, shell=[sys.executable, "-c", SHELL]) as process:
        server, errors = int(process.ready["pid"]), process.process.stderr
        assert errors is not None
        os.close(theirs)
        os.close(ours)
        try:
            assert "the terminal was closed; the server keeps running" in errors.readline()
            os.kill(server, signal.SIGHUP)
            assert "has read" in errors.readline()
        finally:
            os.kill(server, signal.SIGTERM)
        # It ends when the server, which has its standard error, has ended.
        assert "ERROR" not in errors.read()


def test_a_hangup_without_a_property_file_stops_the_command_cleanly(tmp_path: Path) -> None:
    store = tmp_path / "store"
    words = ["--store", str(store), "--listen-port", "0", "--name-server-port", "0"]
    with Process("server", *words) as process:
        assert process.end(signal.SIGHUP) == 0
    assert not (store / "abort").exists()


def test_a_hangup_lets_a_name_server_read_its_file_again(tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    text = f"kvConfigPath={tmp_path / 'kv.json'}\nbindAddress=localhost\nlistenPort=0\n"
    file.write_text(text + "enableTopicList=true\n")
    with Process("nameserver", "-c", str(file)) as process:
        errors = process.process.stderr
        assert errors is not None
        address = process.ready["name_server"]

        def lists() -> int:
            return ask(address, RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "C"}).code

        assert lists() == 0
        file.write_text(text + "enableTopicList=false\n")
        process.process.send_signal(signal.SIGHUP)
        assert "has read" in errors.readline()
        assert lists() == 1
        file.write_text(text + "scanNotActiveBrokerInterval=7\n")
        process.process.send_signal(signal.SIGHUP)
        # The refused list has a line of its own.
        assert "refused" in errors.readline()
        assert "stays as it is" in errors.readline()
        assert lists() == 1
        assert process.end(signal.SIGTERM) == 0


def test_a_second_interrupt_ends_the_drain_but_not_the_flush(
    tmp_path: Path, small_store: Path
) -> None:
    store = tmp_path / "store"
    with Process(*server_words(small_store, store)) as process:
        process.process.send_signal(signal.SIGINT)
        assert process.end(signal.SIGINT) == 0
    assert not (store / "abort").exists()


def test_a_start_that_fails_is_one_line_and_a_status(tmp_path: Path, small_store: Path) -> None:
    words = server_words(small_store, tmp_path / "store")
    with Process(*words) as first:
        second = subprocess.run(
            [sys.executable, "-m", "pyrmq", *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
            env=ENVIRONMENT,
        )
        assert second.returncode == 1
        (line,) = second.stderr.splitlines()
        assert line.startswith("error: ")
        assert "in use" in line
        assert first.end(signal.SIGTERM) == 0
