"""`pyrmq doctor`: nothing on a healthy cluster, and each broken set-up by its name."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.clock import clock_of_the_servers
from tests.e2e.few_files import few_files
from tests.e2e.wire import Connection, await_true, register

from pyrmq import Admin, Broker, NameServer, Producer, PushConsumer, RmqError, _core
from pyrmq.cli import main
from pyrmq.config import NAME_SERVER_STATUS
from pyrmq.doctor import CHECKS, examine, probes
from pyrmq.doctor.facts import BrokerFacts, Facts, NameServerFacts, Query, collect
from pyrmq.doctor.network import Dialed, is_container_bridge, split
from pyrmq.testing import cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HOST = "127.0.0.1"


def found(*servers: str, **options: Any) -> dict[str, str]:  # noqa: ANN401 - options of examine
    """Return the causes by check."""
    return {one.check: one.cause for one in examine(list(servers), **options)}


@contextmanager
def stranger(answer: bytes) -> Iterator[str]:
    """Run a server that answers the first bytes of each connection with the same bytes."""
    with socket.create_server((HOST, 0)) as server:

        def serve() -> None:
            while True:
                try:
                    link, _ = server.accept()
                except OSError:
                    return
                with link:
                    link.recv(1 << 16)
                    link.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"{HOST}:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join(10)


@contextmanager
def hanging(address: str) -> Iterator[tuple[str, list[int]]]:
    """Run a server that answers one connection's request as another one does, and no later one.

    Yields its address, and the codes of the requests without an answer.
    """
    unanswered: list[int] = []

    def read(link: socket.socket) -> None:
        seen = b""
        with link:
            while part := link.recv(1 << 16):
                seen += part
                while (decoded := _core.Command.decode(seen)) is not None:
                    unanswered.append(decoded[0].code)
                    seen = seen[decoded[1] :]

    with socket.create_server((HOST, 0)) as server:
        threads: list[threading.Thread] = []

        def serve() -> None:
            link, _ = server.accept()
            with link, socket.create_connection(split(address)) as behind:
                behind.sendall(link.recv(1 << 16))
                link.sendall(behind.recv(1 << 16))
            while True:
                try:
                    link, _ = server.accept()
                except OSError:
                    return
                threads.append(threading.Thread(target=read, args=(link,), daemon=True))
                threads[-1].start()

        threads.append(threading.Thread(target=serve, daemon=True))
        threads[0].start()
        yield f"{HOST}:{server.getsockname()[1]}", unanswered
        server.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join(10)


def own_broker(name_server: str, store: Path, **options: Any) -> Broker:  # noqa: ANN401 - options
    """Make a broker that is not part of a cluster fixture."""
    usual: dict[str, Any] = {"broker_name": "lone", "broker_ip1": HOST, "bind_address": HOST}
    usual |= {"listen_port": 0, "namesrv_addr": name_server, "store_path_root_dir": str(store)}
    usual |= {
        "mapped_file_size_commit_log": 1 << 20,
        "max_hash_slot_num": 100,
        "max_index_num": 400,
    }
    return Broker(**{**usual, **options})


def own_name_server(home: Path) -> NameServer:
    return NameServer(listen_port=0, bind_address=HOST, kv_config_path=home / "kvConfig.json")


def test_a_healthy_cluster_has_nothing_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    with cluster(brokers=2, name_servers=2) as running:
        with Admin(name_server=running.name_server) as admin:
            admin.create_topic("orders", queues=2)
        consumers = [
            PushConsumer(name_server=running.name_server, group="kitchen", instance_name=name)
            for name in ("one", "two")
        ]
        for consumer in consumers:
            consumer.subscribe("orders", print)
            consumer.start()
        asked = Query([running.name_servers[0].address], None, "kitchen", 5.0)
        await_true(lambda: len(collect(asked).members) == 2)
        facts = collect(asked)
        assert all(broker.status and broker.config for broker in facts.brokers)
        assert all(member.subscriptions["orders"] == "*" for member in facts.members)
        assert examine(running.name_server, topic="orders", group="kitchen") == []
        assert main(["doctor", "-n", running.name_server]) == 0
        for consumer in consumers:
            consumer.close()
    assert "nothing wrong" in capsys.readouterr().out


def test_wrong_port() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
    causes = found(f"{HOST}:{port}")
    assert list(causes) == ["name-server-port"]
    assert "refused" in causes["name-server-port"]


def test_a_server_that_never_answers() -> None:
    with socket.create_server((HOST, 0)) as silent:
        address = f"{HOST}:{silent.getsockname()[1]}"
        assert "does not answer" in found(address, timeout=0.5)["name-server-port"]


def test_a_server_that_hangs_after_its_first_answer_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyrmq.doctor.servers._MIN_WAIT_S", 0.3)
    with own_name_server(tmp_path) as names, hanging(names.address) as (address, unanswered):
        seen = collect(Query([address], "orders", None, 0.3))
    # Its route and its options are not asked for: that would take two more limits.
    assert unanswered == [NAME_SERVER_STATUS]
    assert seen.name_servers[0].dialed.step == "answered"


@pytest.mark.parametrize("which", ["name server", "broker"])
def test_a_server_that_hangs_after_its_first_answer_is_named(
    which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyrmq.doctor.servers._MIN_WAIT_S", 0.3)
    with (
        own_name_server(tmp_path) as names,
        own_broker(names.address, tmp_path / "store") as broker,
        Connection(names.address) as registration,
        hanging(names.address if which == "name server" else broker.address) as (address, _),
    ):
        broker.await_registration()
        name_server = address
        if which == "broker":
            name_server = names.address
            register(registration, "far", ["a", "b"], port=split(address)[1])
        findings = {one.check: one for one in examine(name_server, timeout=0.3)}
    assert findings["server-hangs"].level == "warning"
    place = f"broker far ({address})" if which == "broker" else f"name server {address}"
    assert findings["server-hangs"].cause.startswith(f"{place} does not answer each request")
    assert findings["server-hangs"].cause.endswith(" within 300 ms")


@pytest.mark.nightly
@pytest.mark.parametrize("which", ["name server", "broker"])
def test_a_server_that_hangs_takes_less_than_five_seconds(which: str, tmp_path: Path) -> None:
    with (
        own_name_server(tmp_path) as names,
        own_broker(names.address, tmp_path / "store") as broker,
        Connection(names.address) as registration,
        hanging(names.address if which == "name server" else broker.address) as (address, asked),
    ):
        name_server = address
        if which == "broker":
            name_server = names.address
            register(registration, "far", ["a", "b"], port=split(address)[1])
        began = time.monotonic()
        examine(name_server, topic="orders", group="kitchen")
        assert time.monotonic() - began < 5
    assert len(asked) == 2


def test_a_resolver_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    is_over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: is_over.wait(30) and [])
    causes = found("broker.example:9876", timeout=0.2)
    is_over.set()
    assert "do not answer within 0.2 s" in causes["name-server-name"]


@pytest.mark.parametrize("address", ["nobody.invalid:9876", "9876", "host:port", "host:70000"])
def test_a_name_that_does_not_resolve(address: str) -> None:
    assert list(found(address)) == ["name-server-name"]


def test_a_container_s_address(tmp_path: Path) -> None:
    with (
        own_name_server(tmp_path) as names,
        own_broker(names.address, tmp_path / "store", broker_ip1="172.17.0.9") as broker,
    ):
        broker.await_registration()
        causes = found(names.address)
    assert "172.17.0.9" in causes["broker-address"]
    assert set(causes) == {"broker-address"}


def test_which_addresses_belong_to_containers() -> None:
    assert is_container_bridge("172.17.0.2")
    assert not is_container_bridge("172.16.0.2")
    assert not is_container_bridge(HOST)
    assert not is_container_bridge("broker.example")


def test_a_full_disk() -> None:
    with cluster(faults=True) as running:
        running.brokers[0].disk.full()
        await_true(lambda: "broker-disk" in found(running.name_server))
        assert "0 MiB left" in found(running.name_server)["broker-disk"]


def test_a_missing_topic() -> None:
    with cluster() as running:
        assert list(found(running.name_server, topic="nowhere")) == ["topic-missing"]


def test_no_permission() -> None:
    with cluster(brokers=2) as running:
        with Admin(name_server=running.name_server) as admin:
            admin.create_topic("read", perm=4)
            admin.create_topic("write", perm=2)
        assert "write to" in found(running.name_server, topic="read")["topic-permission"]
        assert "read from" in found(running.name_server, topic="write")["topic-permission"]
        running.brokers[1].server.reconfigure({"broker_permission": 4})
        causes = found(running.name_server)
    assert "broker-b" in causes["broker-permission"]
    assert "writing" in causes["broker-permission"]


@pytest.mark.timeout(90)
def test_a_clock_that_is_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        clock_of_the_servers(tmp_path, monkeypatch) as move,
        cluster(processes=True) as running,
    ):
        monkeypatch.delenv("LD_PRELOAD")
        assert found(running.name_server) == {}
        move(-3600)
        findings = examine(running.name_server)
    assert [(one.check, one.level) for one in findings] == [("clock", "warning")] * 2
    assert "3600 s behind" in findings[0].cause


def test_two_brokers_with_one_id(tmp_path: Path) -> None:
    with (
        own_name_server(tmp_path) as names,
        own_broker(names.address, tmp_path / "one") as first,
        own_broker(names.address, tmp_path / "two") as second,
    ):
        first.await_registration()
        second.await_registration()
        cause = found(names.address)["broker-identity"]
        assert first.address in cause
        assert second.address in cause
        second.stop()
        # A broker that came back on another port is alone with its name.
        first.stop()
        with own_broker(names.address, tmp_path / "one") as again:
            again.await_registration()
            assert found(names.address) == {}


def test_a_stale_route() -> None:
    with cluster(brokers=2, faults=True) as running:
        # The broker's own connection to the name server stays open, so it is not forgotten at once.
        running.brokers[1].network.refuse()
        causes = found(running.name_server)
    assert list(causes) == ["broker-gone"]
    assert "broker-b" in causes["broker-gone"]


def test_a_low_descriptor_limit(tmp_path: Path) -> None:
    with (
        own_name_server(tmp_path) as names,
        few_files(names.address, tmp_path / "store") as broker,
    ):
        await_true(lambda: broker.health()["registered"] == 1)
        causes = found(names.address)
    assert list(causes) == ["broker-descriptors"]
    assert "256" in causes["broker-descriptors"]


def test_a_read_only_store() -> None:
    with (
        cluster(faults=True, flush_disk_type="SYNC_FLUSH") as running,
        Producer(name_server=running.name_server, retries=0) as producer,
    ):
        producer.send("orders", b"x")
        running.brokers[0].disk.fail_syncs()
        with pytest.raises(RmqError):
            producer.send("orders", b"x", timeout=5)
        assert "broker-read-only" in found(running.name_server)


def test_name_servers_that_disagree(tmp_path: Path) -> None:
    (tmp_path / "second").mkdir()
    with (
        own_name_server(tmp_path) as first,
        own_name_server(tmp_path / "second") as second,
        own_broker(first.address, tmp_path / "store") as broker,
    ):
        broker.await_registration()
        cause = found(first.address, second.address)["name-servers-disagree"]
        assert f"{second.address} does not know broker lone" in cause


def test_no_broker(tmp_path: Path) -> None:
    with own_name_server(tmp_path) as names:
        assert list(found(names.address)) == ["no-broker"]


@pytest.mark.parametrize(
    ("answer", "seen"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "TLS"),
        (b"SSH-2.0-server\r\n", "SSH"),
        (b"\xff\xff\xff\xff rubbish", "not a RocketMQ frame"),
        (b"\x00\x00\x00\x40\x00\x00\x00\x20{", "in the middle"),
        (b"", "without an answer"),
    ],
)
def test_a_proxy_in_between(answer: bytes, seen: str, tmp_path: Path) -> None:
    with stranger(answer) as address, own_name_server(tmp_path) as names:
        assert seen in found(address)["name-server-protocol"]
        with Connection(names.address) as registration:
            register(registration, "far", ["a", "b"], port=int(address.rsplit(":")[1]))
            assert seen in found(names.address)["broker-protocol"]


def test_a_broker_in_the_place_of_a_name_server() -> None:
    with cluster() as running:
        assert list(found(running.broker.address)) == ["name-server-refused"]


def test_members_of_a_group_that_read_different_things() -> None:
    with cluster(brokers=2) as running:
        with Admin(name_server=running.name_server) as admin:
            admin.create_topic("orders", queues=2)
        one, two = (
            PushConsumer(name_server=running.name_server, group="kitchen", instance_name=name)
            for name in ("one", "two")
        )
        one.subscribe("orders", print, "new")
        two.subscribe("orders", print, "old")
        with one, two:
            causes: dict[str, str] = {}

            def differ() -> bool:
                causes.update(found(running.name_server, group="kitchen"))
                return "group-subscriptions" in causes

            await_true(differ)
    assert "orders (new)" in causes["group-subscriptions"]
    assert "orders (old)" in causes["group-subscriptions"]


def memory(used: int, limit: int | None) -> dict[str, int | None]:
    return {"resident_bytes": used, "limit_bytes": limit}


def revoked(*, out_of_date: bool) -> dict[str, dict[str, object]]:
    return {"revoked_certificates": {"next_update_ms": 1, "out_of_date": out_of_date}}


BROKER = partial(BrokerFacts, "a", 0, "10.1.2.3:10911", Dialed("answered"))


@pytest.mark.parametrize(
    ("probe", "broker", "ill"),
    [
        (probes.broker_version, BROKER(runtime={"brokerVersionDesc": "V4_5_2"}), True),
        (probes.broker_version, BROKER(runtime={"brokerVersionDesc": "V4_6_0"}), False),
        (probes.broker_version, BROKER(runtime={"brokerVersionDesc": "HIGHER_VERSION"}), False),
        (probes.broker_memory, BROKER(status={"memory": memory(95, 100)}), True),
        (probes.broker_memory, BROKER(status={"memory": memory(80, 100)}), False),
        (probes.broker_memory, BROKER(status={"memory": memory(80, None)}), False),
        (probes.revoked_certificates, BROKER(status=revoked(out_of_date=True)), True),
        (probes.revoked_certificates, BROKER(status=revoked(out_of_date=False)), False),
        (probes.revoked_certificates, BROKER(status={}), False),
        (probes.broker_file_system, BROKER(status={"file_system": "nfs4"}), True),
        (probes.broker_file_system, BROKER(status={"file_system": "ext4"}), False),
        (probes.open_broker, BROKER(config={"bindAddress": "0.0.0.0"}), True),
        (probes.open_broker, BROKER(config={"bindAddress": "127.0.0.1"}), False),
        (probes.open_broker, BROKER(config={"authenticationEnabled": "true"}), False),
        (probes.open_broker, BROKER(config={"tls.server.mode": "enforcing"}), True),
        (probes.open_broker, BROKER(config={"tls.server.need.client.auth": "require"}), False),
        (probes.broker_disk, BROKER(runtime={"commitLogDiskRatio": "0.95"}), True),
        (probes.broker_disk, BROKER(runtime={"commitLogDiskRatio": "0.7"}), False),
        (probes.broker_permission, BROKER(config={"brokerPermission": "0"}), True),
    ],
)
def test_what_no_cluster_here_can_show(
    probe: Callable[[Facts], Iterator[object]], broker: BrokerFacts, *, ill: bool
) -> None:
    facts = Facts(Query(["x:1"], None, None, 1.0), [], [broker])
    assert bool(list(probe(facts))) is ill


@pytest.mark.parametrize(
    ("address", "config", "ill"),
    [
        ("10.1.2.3:9876", {"authenticationEnabled": "false", "bindAddress": "0.0.0.0"}, True),
        ("10.1.2.3:9876", {"authenticationEnabled": "true", "bindAddress": "0.0.0.0"}, False),
        ("127.0.0.1:9876", {"authenticationEnabled": "false", "bindAddress": "0.0.0.0"}, False),
        ("10.1.2.3:9876", {"authenticationEnabled": "false", "bindAddress": "127.0.0.1"}, False),
        # Apache's.
        ("10.1.2.3:9876", {"bindAddress": "0.0.0.0"}, False),
    ],
)
def test_an_open_name_server_is_found(address: str, config: dict[str, str], *, ill: bool) -> None:
    server = NameServerFacts(address, Dialed("answered"), config=config)
    facts = Facts(Query([address], None, None, 1.0), [server], [])
    assert bool(list(probes.open_name_server(facts))) is ill


def test_every_text_can_be_filled_in_and_names_a_fix() -> None:
    assert len({check.name for check in CHECKS}) == len(CHECKS) >= 20
    for check in CHECKS:
        assert check.cause
        assert len(check.fix) > 20


def test_the_command_prints_findings_for_people_and_for_programs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    address = "nobody.invalid:9876"
    assert main(["doctor", "-n", address]) == 1
    text = capsys.readouterr().out
    assert text.startswith(f"error: name server {address}: nobody.invalid: ")
    assert "fix: correct the name server's address" in text
    assert main(["doctor", "-n", address, "--json"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["check"] == "name-server-name"


DOCTOR = """
import signal
import sys
from pyrmq.cli import main

# A shell starts what runs in its background with SIGINT ignored, and Python leaves it so.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main(["doctor", *sys.argv[1:]]))
"""


def on_a_terminal(columns: int, *words: str, interrupted: bool = False, term: str = "xterm") -> str:
    """Run the command on a terminal of this width; return what it wrote there.

    Args:
        columns: The terminal's width.
        words: Arguments of the command.
        interrupted: Press Ctrl-C as soon as it waits for a server.
        term: The terminal's kind.
    """
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, columns))
    command = [sys.executable, "-c", DOCTOR, *words]
    process = subprocess.Popen(
        command, stdout=theirs, stderr=theirs, env=os.environ | {"TERM": term}
    )
    os.close(theirs)
    seen, status = b"", 130 if interrupted else 1
    try:
        while part := os.read(ours, 65536):
            seen += part
            if interrupted and b"waiting for" in seen:
                interrupted = False
                process.send_signal(signal.SIGINT)
    except OSError:
        # The other side of the terminal is closed.
        pass
    finally:
        os.close(ours)
    assert process.wait(30) == status, seen
    return seen.decode()


def test_a_terminal_shows_which_server_is_waited_for_and_which_check_runs() -> None:
    with socket.create_server((HOST, 0)) as silent:
        address = f"{HOST}:{silent.getsockname()[1]}"
        words = ("-n", address, "--timeout", "0.3")
        wide = on_a_terminal(200, *words)
        narrow = on_a_terminal(30, *words)
        plain = on_a_terminal(200, *words, "--json")
        dumb = on_a_terminal(200, *words, term="dumb")
    steps = wide.split("\r\x1b[K")
    assert steps[1] == f"name servers: 0 of 1 done, waiting for {address}"
    assert steps[2:-1] == [
        f"check {number} of {len(CHECKS)}: {check.name}" for number, check in enumerate(CHECKS, 1)
    ]
    # The last one wiped the line for the findings.
    assert steps[-1].startswith("error: name server")
    cut = narrow.split("\r\x1b[K")[1:-1]
    assert cut == [step[:29] for step in steps[1:-1]]
    assert "\x1b" not in plain + dumb
    assert dumb.startswith("error: name server")
    assert json.loads(plain)["check"] == "name-server-port"


@pytest.mark.parametrize("servers", [1, 40])
def test_ctrl_c_does_not_wait_for_silent_servers(servers: int) -> None:
    with ExitStack() as silent:
        links = [silent.enter_context(socket.create_server((HOST, 0))) for _ in range(servers)]
        names = ";".join(f"{HOST}:{link.getsockname()[1]}" for link in links)
        began = time.monotonic()
        shown = on_a_terminal(200, "-n", names, "--timeout", "20", interrupted=True)
        took = time.monotonic() - began
    # With the start of the interpreter.
    assert took < 5
    assert "error" not in shown
    assert shown.endswith("\r\x1b[K")


def test_a_pipe_gets_no_progress() -> None:
    with socket.create_server((HOST, 0)) as taken:
        address = f"{HOST}:{taken.getsockname()[1]}"
    command = [sys.executable, "-m", "pyrmq", "doctor", "-n", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.stdout.startswith("error: name server")
    assert done.stderr == ""


def test_the_steps_of_an_examination_name_each_kind_of_server() -> None:
    steps: list[str] = []
    with cluster() as running:
        with Admin(name_server=running.name_server) as admin:
            admin.create_topic("orders", queues=2)
        consumer = PushConsumer(name_server=running.name_server, group="kitchen")
        consumer.subscribe("orders", print)
        consumer.start()
        asked = Query([running.name_servers[0].address], None, "kitchen", 5.0)
        await_true(lambda: len(collect(asked).members) == 1)
        assert examine(running.name_server, group="kitchen", report=steps.append) == []
        address = running.broker.address
        consumer.close()
    assert steps[0].startswith("name servers: 0 of 1 done, waiting for ")
    assert steps[1] == f"brokers: 0 of 1 done, waiting for broker-a ({address})"
    assert steps[2].startswith("group kitchen: 0 members done, waiting for ")
    assert len(steps) == 3 + len(CHECKS)


def test_addresses() -> None:
    assert split("[::1]:9876") == ("::1", 9876)
    with pytest.raises(ValueError, match="1 to 65535"):
        split("host:0")
