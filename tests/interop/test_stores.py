"""A store written by one broker opens in the other, after a clean stop and after kill -9."""

from __future__ import annotations

import tarfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.interop.cluster import broker, name_server
from tests.interop.driver import DriverError
from tests.interop.sample import (
    KEYS,
    SETTINGS,
    TOPICS,
    await_offsets_on_disk,
    fill,
    read_offsets,
    read_topics,
    transact,
)
from tests.reference import golden

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.interop.driver import Driver, Row
    from tests.interop.ours import OurBroker
    from tests.interop.rocketmq import JavaBroker

SAMPLES = golden.manifest().get("stores", [])
ENDS = ("clean", pytest.param("kill", marks=pytest.mark.interop_all))
AT_ONCE = ("5.5.0-clean.tar.xz", "4.6.1-kill.tar.xz")
"""With one version, recorded stores of the newest and of the oldest; the others give no more."""


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Stops what a test started, whatever happens."""
    with ExitStack() as one:
        yield one


def reader_of(config: pytest.Config) -> str:
    """Return which broker opens foreign stores: ours, or the real one to check the tests."""
    return "java" if config.getoption("--rocketmq-control") else "ours"


def comparable(rows: list[Row]) -> list[Row]:
    """Remove what depends on the reader and the time.

    Clients of 5.x clear the compression bits of the system flag when they unpack; MAX_OFFSET is
    the queue's end at the time of the pull.
    """
    return [
        {
            **{key: value for key, value in row.items() if key != "sysFlag"},
            "properties": {
                key: value for key, value in row["properties"].items() if key != "MAX_OFFSET"
            },
        }
        for row in rows
    ]


def without_what_was_due(rows: list[Row], sent: list[Row]) -> list[Row]:
    """Remove the sample's only delayed message.

    It was due two hours after the recording, so a broker that opens the sample later delivers it,
    some time after its start.
    """
    newest = max(row["storeTimestamp"] for row in sent)
    later = [row for row in rows if row["storeTimestamp"] > newest]
    assert [row["topic"] for row in later] in ([], ["Tagged"])
    return [row for row in rows if row not in later]


def assert_same_content(
    driver: Driver, address: str, sent: dict[str, Any], reader: str = "ours"
) -> None:
    """Compare all messages, offsets and some keys with what was written."""
    found = without_what_was_due(read_topics(driver, address), sent["messages"])
    assert comparable(found) == comparable(sent["messages"])
    assert read_offsets(driver, address) == sent["committed"]
    for topic, keys in KEYS.items():
        for key in keys:
            try:
                found = driver.find_key(address, topic, key)
            except DriverError as error:
                raise AssertionError(f"{reader} does not find key {key} of {topic}") from error
            wanted = [row for row in sent["messages"] if key in (row["keys"] or "").split()]
            wanted = [row for row in wanted if row["topic"] == topic]
            assert {row["msgId"] for row in found} <= {row["msgId"] for row in wanted}
            assert found


@pytest.mark.parametrize(
    "sample",
    [
        pytest.param(
            row,
            id=Path(row["file"]).name,
            marks=() if Path(row["file"]).name in AT_ONCE else pytest.mark.interop_all,
        )
        for row in SAMPLES
    ],
)
def test_a_recorded_store_of_the_real_broker_opens_with_all_it_holds(
    drivers: Callable[..., Driver],
    stack: ExitStack,
    tmp_path: Path,
    pytestconfig: pytest.Config,
    sample: dict[str, str],
) -> None:
    store = tmp_path / "store"
    with tarfile.open(golden.GOLDEN / sample["file"]) as tar:
        tar.extractall(store, filter="data")
    sent = golden.content(sample)
    driver = drivers("5.5.0")
    who = reader_of(pytestconfig)
    version = sample["version"]
    names = name_server(who, version)
    stack.callback(names.start().kill)
    one = broker(who, version, names.address, store_dir=store, properties=sent["settings"])
    stack.callback(one.start().kill)
    await_routes(driver, names.address, one.address)
    assert_same_content(driver, names.address, sent)
    with driver.producer(names.address) as producer:
        after = driver.send(producer, "Single", prefix="after")[0]
    assert after["queueOffset"] == sum(row["topic"] == "Single" for row in sent["messages"])


@pytest.mark.timeout(240)
@pytest.mark.parametrize("end", ENDS)
def test_a_store_of_ours_opens_in_the_real_broker_and_again_in_ours(
    drivers: Callable[..., Driver],
    stack: ExitStack,
    tmp_path: Path,
    pytestconfig: pytest.Config,
    version: str,
    end: str,
) -> None:
    store = tmp_path / "store"
    driver = drivers("5.5.0")
    writer = reader_of(pytestconfig)
    names = name_server(writer, version)
    stack.callback(names.start().kill)

    def start(who: str) -> JavaBroker | OurBroker:
        one = broker(who, version, names.address, store_dir=store, properties=SETTINGS)
        stack.callback(one.kill)
        return one.start()

    one = start(writer)
    sent = fill(driver, names.address, one.address, delayed=False, transactions=False)
    await_offsets_on_disk(store, sent)
    finish(one, end)

    real = start("java")
    await_routes(driver, names.address, real.address)
    assert_same_content(driver, names.address, sent, "the real one")
    with driver.producer(names.address) as producer:
        driver.send(producer, "Plain", count=20, start=1000, key="plain-")
        driver.send(producer, "Tagged", delay=18, prefix="in two hours")
    transact(driver, names.address)
    sent["messages"] = read_topics(driver, names.address)
    finish(real, end)

    again = start(writer)
    await_routes(driver, names.address, again.address)
    assert_same_content(driver, names.address, sent)


def finish(one: JavaBroker | OurBroker, end: str) -> None:
    """Stop a broker cleanly or kill it."""
    if end == "kill":
        one.kill()
    else:
        one.stop()


def await_routes(driver: Driver, address: str, where: str) -> None:
    """Wait until the name server routes to the broker that was just started.

    A Java broker whose first registration fails tries again after thirty seconds.
    """
    for topic in TOPICS:
        driver.call(
            "admin.awaitRoute", namesrv=address, topic=topic, broker=where, routeTimeout=70_000
        )
