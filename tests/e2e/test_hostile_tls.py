"""A secured server under attack, and one whose files change, while a client keeps working.

Where a time is bounded, it is the client's own: the time in which this machine woke its threads too
late is taken off (``tests/chaos/watch.py``). ``--hostile-seconds`` says how long the attack lasts
(3 s); with ``--nightly`` it is ten minutes, with 10,000 half-open connections.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Self

import pytest
from tests.chaos.watch import Watch
from tests.e2e.hostile import resident

from pyrmq import Admin, Credentials, Producer, RmqError
from pyrmq.server.security.directory import make_secure

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
PER_CONNECTION = 48 << 10
SEED = 21


@dataclass
class Secured:
    """A server process with TLS and users."""

    files: Path
    address: str
    pid: int
    log: Path

    def credentials(self, name: str) -> Credentials:
        """Return those of one of the users."""
        return Credentials.from_file(self.files / f"{name}.toml")


@contextmanager
def secured(tmp_path: Path) -> Iterator[Secured]:
    files, log = tmp_path / "secure", tmp_path / "server.log"
    make_secure(files)
    command = [sys.executable, "-m", "pyrmq", "server", "--json", "--secure", str(files)]
    command += ["--store", str(tmp_path / "store"), "--listen-port", "0", "--name-server-port", "0"]
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as server,
    ):
        try:
            assert server.stdout is not None
            ready = json.loads(server.stdout.readline())
            made = Secured(files, ready["name_server"], server.pid, log)
            with Admin(
                name_server=made.address, credentials=made.credentials("admin"), timeout=20
            ) as admin:
                admin.create_topic("orders", queues=4)
            yield made
        finally:
            server.terminate()
            server.wait(timeout=30)


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
        options: dict[str, Any] = {"retries": 0, "credentials": self.server.credentials("app")}
        with Producer(name_server=self.server.address, **options) as producer:
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


def attacked(tmp_path: Path, seconds: float, held: int, calm_s: float) -> None:
    with secured(tmp_path) as server, Watch() as watch, Load(server, watch) as load:
        time.sleep(calm_s)
        before, began = resident(server.pid), time.monotonic()
        command = [sys.executable, "-m", "tests.e2e.hostile_tls", server.address]
        command += [str(seconds), str(held), str(SEED)]
        most = before
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'python'}"}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
        ) as attacker:
            try:
                while attacker.poll() is None:
                    most = max(most, resident(server.pid))
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
        text = server.log.read_text()
        assert "panicked" not in text
        assert "Traceback" not in text
        if calm_s >= 10:
            # The attackers' own work is on the same cores: below this it decides.
            assert p99(stormy) <= max(2 * p99(calm), 0.005)


@pytest.mark.timeout(120)
def test_attacks_on_a_secured_server_fail_no_send_and_bound_its_memory(tmp_path: Path) -> None:
    attacked(tmp_path, 3, 200, 0.5)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_a_long_attack_doubles_no_clients_p99(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    attacked(tmp_path, request.config.getoption("--hostile-seconds"), 10_000, 20)


@pytest.mark.nightly
@pytest.mark.timeout(120)
def test_certificates_and_a_thousand_users_change_under_load_and_no_send_is_late(
    tmp_path: Path,
) -> None:
    with secured(tmp_path) as server, Watch() as watch:
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
        assert "stay in force" not in server.log.read_text()


def _replace(path: Path, text: str) -> None:
    fresh = path.with_name(path.name + ".new")
    fresh.touch(mode=0o600)
    fresh.write_text(text)
    fresh.replace(path)
