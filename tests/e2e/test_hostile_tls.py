"""A secured server under attack, and one whose files change, while a client keeps working.

Where a time is bounded, it is the client's own: the time in which this machine woke its threads too
late is taken off (``tests/chaos/watch.py``). ``--hostile-seconds`` says how long the attack lasts
(3 s); with ``--nightly`` it is ten minutes for each kind of accounts, with 10,000 half-open
connections. Attacks go to the name server's port and to both of the broker's, whose sends are
watched.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Self

import pytest
from tests.chaos.watch import Watch
from tests.e2e.hostile import resident
from tests.e2e.test_plain_acl import COOK, KEEPER
from tests.e2e.test_plain_acl import home as accounts
from tests.e2e.wire import await_true

from pyrmq import Admin, Credentials, Producer, RmqError, Tls
from pyrmq.server.security.directory import make_secure

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
PER_CONNECTION = 48 << 10
SEED = 21


@dataclass
class Secured:
    """Server processes with TLS, which know their clients.

    Attributes:
        address: The name server's.
        ports: Every address that is attacked.
        pids, logs: Of each process.
        owner, sender: The clients that create topics and that send.
    """

    files: Path
    address: str
    ports: list[str]
    pids: list[int]
    logs: list[Path]
    owner: dict[str, Any]
    sender: dict[str, Any]

    def memory(self) -> int:
        """Return the resident bytes of all processes."""
        return sum(map(resident, self.pids))

    def log(self) -> str:
        """Return what all processes logged."""
        return "".join(log.read_text() for log in self.logs)


@contextmanager
def process(log: Path, *words: str) -> Iterator[dict[str, Any]]:
    """A server's process, once it is ready: the line that it prints then."""
    command = [sys.executable, "-m", "pyrmq", words[0], "--json", *words[1:]]
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as server,
    ):
        try:
            assert server.stdout is not None
            yield json.loads(server.stdout.readline())
        finally:
            server.terminate()
            server.wait(timeout=30)


def fast_port(broker: str) -> str:
    """Return the address of a broker's second port."""
    host, _, port = broker.rpartition(":")
    return f"{host}:{int(port) - 2}"


@contextmanager
def with_users(tmp_path: Path) -> Iterator[Secured]:
    """Name server and broker in one process, with users and policies."""
    files, log = tmp_path / "secure", tmp_path / "server.log"
    make_secure(files)
    words = ["server", "--secure", str(files), "--store", str(tmp_path / "store")]
    words += ["--listen-port", "0", "--name-server-port", "0"]
    with process(log, *words) as ready:
        names, broker = ready["name_server"], ready["broker"]
        owner, sender = (
            {"credentials": Credentials.from_file(files / f"{name}.toml")}
            for name in ("admin", "app")
        )
        ports = [names, broker, fast_port(broker)]
        yield Secured(files, names, ports, [ready["pid"]], [log], owner, sender)


@contextmanager
def with_accounts(tmp_path: Path) -> Iterator[Secured]:
    """A broker with accounts of 4.x, and a name server, which checks none."""
    files, home = tmp_path / "secure", accounts(tmp_path / "home")
    make_secure(files)
    logs = [tmp_path / f"{name}.log" for name in ("names", "broker")]
    shared = ["--listen-port", "0", "--bind-address", "127.0.0.1", "--tls-server-mode", "enforcing"]
    shared += ["--tls-server-cert-path", str(files / "server.pem")]
    shared += ["--tls-server-key-path", str(files / "server-key.pem")]
    shared += ["--tls-client-trust-cert-path", str(files / "ca.pem")]
    with process(logs[0], "nameserver", *shared) as names:
        words = ["broker", *shared, "-n", names["name_server"]]
        words += ["--broker-ip1", "127.0.0.1", "--store-path-root-dir", str(tmp_path / "store")]
        words += ["--acl-enable", "true", "--rocketmq-home", str(home)]
        with process(logs[1], *words) as ready:
            ports = [names["name_server"], ready["broker"], fast_port(ready["broker"])]
            pids = [names["pid"], ready["pid"]]
            tls = Tls(files / "ca.pem")
            owner, sender = ({"credentials": one, "tls": tls} for one in (KEEPER, COOK))
            yield Secured(files, ports[0], ports, pids, logs, owner, sender)


@contextmanager
def with_topic(server: Secured) -> Iterator[Secured]:
    """The servers, with a topic to send to."""
    with Admin(name_server=server.address, timeout=20, **server.owner) as admin:
        await_true(lambda: bool(admin.cluster()), seconds=30)
        admin.create_topic("orders", queues=4)
    yield server


@dataclass
class Load:
    """Sends one message at a time; the times are seconds from the call to its outcome."""

    server: Secured
    watch: Watch
    spans: list[tuple[float, float, int]] = field(default_factory=list)
    failed: list[RmqError] = field(default_factory=list)
    _stop: Event = field(default_factory=Event)

    def __enter__(self) -> Self:
        self._thread = Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        import threading

        thread = threading.get_native_id()
        with Producer(name_server=self.server.address, retries=0, **self.server.sender) as producer:
            producer.send("orders", b"the first one opens the connections")
            while not self._stop.is_set():
                began = time.monotonic()
                try:
                    producer.send("orders", b"x" * 200)
                except RmqError as error:
                    self.failed.append(error)
                self.spans.append((began, time.monotonic(), thread))
                self._stop.wait(0.002)

    def all(self, begin: float, end: float) -> list[float]:
        """Return the times of the calls that began in a span."""
        return sorted(last - first for first, last, _ in self.spans if begin <= first < end)

    def own(self, begin: float, end: float) -> list[float]:
        """Return the times of the calls that began in a span, without the machine's own delays."""
        return sorted(
            max(0.0, last - first - self.watch.overdue(first, last, thread))
            for first, last, thread in self.spans
            if begin <= first < end
        )


def p99(times: list[float]) -> float:
    return times[int(len(times) * 0.99)]


Kind = Callable[["Path"], AbstractContextManager[Secured]]
both = pytest.mark.parametrize("kind", [with_users, with_accounts], ids=["users", "accounts"])


def attacked(kind: Kind, tmp_path: Path, seconds: float, held: int, calm_s: float) -> None:
    with (
        kind(tmp_path) as made,
        with_topic(made) as server,
        Watch() as watch,
        Load(server, watch) as load,
    ):
        time.sleep(calm_s)
        before, began = server.memory(), time.monotonic()
        command = [sys.executable, "-m", "tests.e2e.hostile_tls", ",".join(server.ports)]
        command += [str(seconds), str(held), str(SEED)]
        most = before
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'python'}"}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
        ) as attacker:
            try:
                while attacker.poll() is None:
                    most = max(most, server.memory())
                    time.sleep(0.1)
                assert attacker.stdout is not None
                counts = json.loads(attacker.stdout.read())
            finally:
                attacker.kill()
        ended = time.monotonic()
        calm, stormy = load.all(0, began), load.all(began, ended)
        print(  # noqa: T201 - the figures of the nightly run
            f"{counts}; {len(calm)} and {len(stormy)} sends, p99 {p99(calm) * 1000:.1f} and "
            f"{p99(stormy) * 1000:.1f} ms; memory {before / MIB:.0f} to {most / MIB:.0f} MiB"
        )
        assert load.failed == []
        assert len(stormy) > 10
        at_once = counts["half-open at once, at most"]
        # The server ends a handshake after 10 s: a busy machine opens no more in that time.
        assert at_once >= held / 2
        assert most - before < 64 * MIB + PER_CONNECTION * at_once
        text = server.log()
        assert "panicked" not in text
        assert "Traceback" not in text
        if calm_s >= 10:
            # The attackers' own work is on the same cores: below this it decides.
            assert p99(stormy) <= max(2 * p99(calm), 0.005)


@both
@pytest.mark.timeout(120)
def test_attacks_on_a_secured_server_fail_no_send_and_bound_its_memory(
    kind: Kind, tmp_path: Path
) -> None:
    attacked(kind, tmp_path, 3, 200, 0.5)


@both
@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_a_long_attack_doubles_no_clients_p99(
    kind: Kind, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    attacked(kind, tmp_path, request.config.getoption("--hostile-seconds"), 10_000, 20)


@pytest.mark.nightly
@pytest.mark.timeout(120)
def test_certificates_and_a_thousand_users_change_under_load_and_no_send_is_late(
    tmp_path: Path,
) -> None:
    with with_users(tmp_path) as made, with_topic(made) as server, Watch() as watch:
        users = server.files / "users.json"
        known = json.loads(users.read_text())
        others = [{"username": f"u{at}", "password": f"password-of-{at}"} for at in range(1000)]
        with Load(server, watch) as load:
            time.sleep(2)
            began = time.monotonic()
            for turn in range(10):
                for other in others:
                    other["password"] = f"password-{turn}-of-{other['username']}"
                _replace(users, json.dumps({**known, "users": [*known["users"], *others]}))
                make_secure(tmp_path / f"next{turn}")
                # The authority stays: clients trust it, and the open connections need no other.
                for name in ("server.pem", "server-key.pem"):
                    _replace(server.files / name, (tmp_path / f"next{turn}" / name).read_text())
                time.sleep(1.5)
            ended = time.monotonic()
        own = load.own(began, ended)
        print(f"{len(own)} sends, the latest {own[-1] * 1000:.1f} ms")  # noqa: T201 - as above
        assert load.failed == []
        assert own[-1] <= 0.1
        assert "stay in force" not in server.log()


def _replace(path: Path, text: str) -> None:
    fresh = path.with_name(path.name + ".new")
    fresh.touch(mode=0o600)
    fresh.write_text(text)
    fresh.replace(path)
