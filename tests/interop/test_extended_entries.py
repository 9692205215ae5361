"""Queues with extended entries of a real broker: ours reads them, and it reads ours."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from pyrmq.cli import main
from tests.interop import artifacts
from tests.interop.cluster import broker
from tests.interop.ours import OurNameServer
from tests.interop.sample import SETTINGS
from tests.interop.store_sends import CREATE_TOPIC, GET_MAX_OFFSET, Sender, key, send
from tests.interop.test_ranges import FOUND, end, pull
from tests.reference import record as log

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.interop_all, pytest.mark.timeout(240)]

TOPIC = "Extended"
WITH = {**SETTINGS, "enableConsumeQueueExt": "true", "mappedFileSizeConsumeQueueExt": 4096}
PLACES_BELOW = -(2**31)


def fill(sender: Sender, numbers: range) -> None:
    for number in numbers:
        tag = "a" if number % 5 == 0 else "b"
        own = {"UNIQ_KEY": key(number), "TAGS": tag}
        answer = send(sender, TOPIC, b"%d" % number, own)
        assert answer.code == 0, answer.remark


def tagged(sender: Sender, count: int, tag: str) -> list[int]:
    """Return the numbers of the messages that the broker's filter passes."""
    sender.await_end(TOPIC, count)
    found: list[int] = []
    at = 0
    while at < end(sender, GET_MAX_OFFSET, TOPIC, 0):
        answer = pull(sender, TOPIC, 0, at, subscription=tag)
        if answer.code == FOUND:
            found += [int(one.body) for one in log.decode_all(answer.body or b"")]
        at = int((answer.fields or {})["nextBeginOffset"])
    return found


def codes(store: Path) -> list[int]:
    units = b"".join(
        path.read_bytes() for path in sorted((store / "consumequeue" / TOPIC / "0").iterdir())
    )
    return [
        int.from_bytes(units[at + 12 : at + 20], "big", signed=True)
        for at in range(0, len(units), 20)
        if any(units[at + 8 : at + 12])
    ]


@pytest.mark.parametrize("maker", [artifacts.VERSIONS[0], "4.9.7"])
def test_extended_entries_are_read_and_plain_ones_added(tmp_path: Path, maker: str) -> None:
    artifacts.require_java()
    store = tmp_path / "store"
    wanted = list(range(0, 700, 5))
    fields = {
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "readQueueNums": "1",
        "writeQueueNums": "1",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    with OurNameServer() as names:
        for who, numbers in (
            ("apache", range(300)),
            ("ours", range(300, 500)),
            ("apache", range(500, 700)),
            ("ours", range(700, 700)),
        ):
            properties = WITH if who == "apache" else SETTINGS
            with (
                broker(who, maker, names.address, store_dir=store, properties=properties) as one,
                closing(Sender(one.address)) as sender,
            ):
                if numbers.start == 0:
                    assert sender.ask(CREATE_TOPIC, fields).code == 0
                fill(sender, numbers)
                expected = [number for number in wanted if number < numbers.stop]
                assert tagged(sender, numbers.stop, "a") == expected, who
                assert not tagged(sender, numbers.stop, "c"), who
    # The real broker's entries are positions of extended ones, ours are plain.
    assert [code < PLACES_BELOW for code in codes(store)] == [
        not 300 <= number < 500 for number in range(700)
    ]
    assert len(list((store / "consumequeue_ext" / TOPIC / "0").iterdir())) > 1
    assert main(["log", "verify", str(store)]) == 0
