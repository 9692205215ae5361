"""Real brokers, clients and mqadmin on our name server during failures."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.interop.ask import ask, await_registered
from tests.interop.driver import DriverError
from tests.interop.ours import OurBroker, OurNameServer
from tests.interop.rocketmq import JavaBroker, JavaNameServer
from tests.reference import frame as wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.interop.driver import Driver

GET_ROUTEINFO_BY_TOPIC = 105
STANDARD_JSON = 513
"""A version whose clients get quoted names."""

SEND_TIMEOUT_MS = 5000


def route(name_server: str, topic: str) -> dict[str, dict[str, str]]:
    """Return the brokers of a topic: name to addresses by id; empty without a route."""
    question = wire.Frame(
        code=GET_ROUTEINFO_BY_TOPIC, version=STANDARD_JSON, fields={"topic": topic}
    )
    body = ask(name_server, question).body
    if body is None:
        return {}
    # Name servers before 4.9.4 write bare broker ids for every client.
    quoted = re.sub(rb"([{,])(\d+):", rb'\1"\2":', body)
    return {row["brokerName"]: row["brokerAddrs"] for row in json.loads(quoted)["brokerDatas"]}


def await_route(
    name_server: str, topic: str, wanted: dict[str, dict[str, str]], seconds: float = 30.0
) -> None:
    """Wait until a topic has exactly these brokers.

    Raises:
        AssertionError: it does not within that time; the text has its brokers.
    """
    deadline = time.monotonic() + seconds
    while (found := route(name_server, topic)) != wanted:
        assert time.monotonic() < deadline, f"{found}, not {wanted}, after {seconds} s"
        time.sleep(0.02)


@contextmanager
def paused(pid: int) -> Iterator[None]:
    """Pause a process for the block, like a long garbage collection or a swapping machine."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def sent_by(driver: Driver, producer: str, topic: str, **options: object) -> set[str]:
    """Send some messages; return the names of the brokers that stored them."""
    rows = driver.send(producer, topic, **options)
    assert {row["status"] for row in rows} == {"SEND_OK"}
    return {row["broker"] for row in rows}


def await_send(driver: Driver, producer: str, topic: str, broker: str | None = None) -> None:
    """Send, to a broker if one is named, until it is accepted.

    A Java client with an old route, or that has just lost its name server, fails at first: it
    requests new routes every thirty seconds.

    Raises:
        DriverError: it still fails after 60 seconds.
    """
    where = {} if broker is None else {"queue": 0, "broker": broker}
    deadline = time.monotonic() + 60
    while True:
        try:
            took = sent_by(driver, producer, topic, **where)
        except DriverError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            assert broker is None or took == {broker}
            return


@pytest.mark.interop_all
@pytest.mark.timeout(240)
def test_real_brokers_die_pause_and_come_back_while_java_keeps_sending(
    drivers: Callable[[str, str], Driver], version: str, name: str
) -> None:
    driver = drivers(version, "JSON")
    with ExitStack() as stack:
        names = stack.enter_context(OurNameServer())
        master = JavaBroker(version, names.address)
        other = stack.enter_context(JavaBroker(version, names.address, name="broker-b"))
        stack.callback(master.kill)
        master.start()
        slave = stack.enter_context(
            JavaBroker(version, names.address, properties={"brokerId": 1, "brokerRole": "SLAVE"})
        )
        for one in (master, other, slave):
            await_registered(names.address, one.address)
        for one in (master, other):
            driver.call("admin.createTopic", namesrv=names.address, topic=name, broker=one.address)
        both = {
            "broker-a": {"0": master.address, "1": slave.address},
            "broker-b": {"0": other.address},
        }
        # A slave copies its master's topics every ten seconds, and registers with them.
        await_route(names.address, name, both)
        producer = stack.enter_context(
            driver.producer(names.address, timeout=SEND_TIMEOUT_MS, retries=5)
        )
        assert sent_by(driver, producer, name, count=16) == {"broker-a", "broker-b"}

        master.kill()
        await_route(names.address, name, {**both, "broker-a": {"1": slave.address}}, seconds=5)
        assert sent_by(driver, producer, name, count=16) == {"broker-b"}

        master.start()
        await_route(names.address, name, both)
        await_send(driver, producer, name, "broker-a")

        with paused(master.pid):
            # Nothing shows it yet: the route stays, and sends to other brokers are not disturbed.
            assert route(names.address, name) == both
            assert sent_by(driver, producer, name, queue=0, broker="broker-b") == {"broker-b"}
        await_send(driver, producer, name, "broker-a")

        with paused(names.pid):
            await_send(driver, producer, name, "broker-a")
            await_send(driver, producer, name, "broker-b")
        assert route(names.address, name) == both

        slave.stop()
        await_route(names.address, name, {**both, "broker-a": {"0": master.address}}, seconds=5)


@pytest.mark.interop_all
@pytest.mark.timeout(180)
def test_a_name_server_started_anew_is_whole_soon(version: str, name: str) -> None:
    with ExitStack() as stack:
        names = OurNameServer()
        stack.callback(names.kill)
        names.start()
        ours = stack.enter_context(OurBroker(names.address, name="ours"))
        theirs = stack.enter_context(JavaBroker(version, names.address, name="theirs"))
        for one in (ours, theirs):
            await_registered(names.address, one.address)
        names.kill()
        names.start()
        # Ours sees the lost connection; a Java broker registers again every thirty seconds.
        await_registered(names.address, ours.address, seconds=5)
        await_registered(names.address, theirs.address, seconds=40)
        both = {"ours": {"0": ours.address}, "theirs": {"0": theirs.address}}
        await_route(names.address, "TBW102", both)


@pytest.mark.interop_all
@pytest.mark.timeout(180)
def test_each_of_several_name_servers_may_die(
    drivers: Callable[[str, str], Driver], version: str, name: str
) -> None:
    driver = drivers(version, "JSON")
    with ExitStack() as stack:
        names = [OurNameServer() for _ in range(3)]
        for one in names:
            stack.callback(one.kill)
            one.start()
        addresses = ";".join(one.address for one in names)
        ours = stack.enter_context(OurBroker(addresses, name="ours"))
        theirs = stack.enter_context(JavaBroker(version, addresses, name="theirs"))
        brokers = {"ours": {"0": ours.address}, "theirs": {"0": theirs.address}}
        for one in names:
            await_route(one.address, "TBW102", brokers)
        producer = stack.enter_context(
            driver.producer(addresses, timeout=SEND_TIMEOUT_MS, retries=3)
        )
        for number, one in enumerate(names):
            one.kill()
            # A topic that the client does not know yet: it must ask a remaining name server.
            topic = f"{name}-{number}"
            await_send(driver, producer, topic)
            for left in names:
                if left is not one:
                    assert "ours" in route(left.address, "TBW102")
            one.start()
            await_registered(one.address, ours.address, seconds=5)


COMMANDS = (
    "clusterList -n {names}",
    "clusterList -n {names} -m",
    "topicList -n {names}",
    "topicList -n {names} -c",
    "topicRoute -n {names} -t {topic}",
    "topicRoute -n {names} -t NoSuchTopic",
    "topicClusterList -n {names} -t {topic}",
    "updateKvConfig -n {names} -s TEST_SPACE -k key -v value",
    "deleteKvConfig -n {names} -s TEST_SPACE -k key",
    "wipeWritePerm -n {names} -b broker-a",
    "topicRoute -n {names} -t {topic}",
    "addWritePerm -n {names} -b broker-a",
    "topicRoute -n {names} -t {topic}",
    "wipeWritePerm -n {names} -b no-such-broker",
    "updateOrderConf -n {names} -t {topic} -m put -v broker-a:4",
    "updateOrderConf -n {names} -t {topic} -m get",
    "topicRoute -n {names} -t {topic}",
    "updateOrderConf -n {names} -t {topic} -m delete",
    "updateOrderConf -n {names} -t {topic} -m get",
    "getNamesrvConfig -n {names}",
)
"""mqadmin's queries of a name server, in an order in which each finds what it needs."""


def normal(text: str, names: str) -> list[str]:
    """Return mqadmin's output without the parts that change from moment to moment.

    Rates, times and disk ratios have a dot or a comma; for an error only the code is compared.
    """
    if codes := re.findall(r"CODE: \d+", text):
        return sorted(set(codes))
    text = text.replace(names, "NAMES")
    lines = [re.sub(r"\d+[.,][\d.,()a-z ]+", "#", line).split() for line in text.splitlines()]
    return sorted(" ".join(words) for words in lines if words)


def keys_of(text: str) -> set[str]:
    """Return the names of the keys of a printed configuration."""
    return {row[0] for line in text.splitlines() if len(row := line.split("=", 1)) == 2}


@pytest.mark.interop_all
def test_mqadmin_prints_the_same_on_both(
    drivers: Callable[[str, str], Driver], version: str, name: str
) -> None:
    driver = drivers(version, "JSON")
    with (
        OurNameServer() as ours,
        JavaNameServer(version) as theirs,
        JavaBroker(version, f"{ours.address};{theirs.address}") as broker,
    ):
        for names in (ours, theirs):
            await_registered(names.address, broker.address)
        driver.call("admin.createTopic", namesrv=ours.address, topic=name, broker=broker.address)
        for names in (ours, theirs):
            await_route(names.address, name, {"broker-a": {"0": broker.address}})
        for command in COMMANDS:
            mine, real = (
                driver.mqadmin(command.format(names=names.address, topic=name))
                for names in (ours, theirs)
            )
            if command.startswith("getNamesrvConfig"):
                assert keys_of(mine) & keys_of(real), (mine, real)
                continue
            assert normal(mine, ours.address) == normal(real, theirs.address), command
