"""Timer files of the real broker, damaged in the same way for both: delivered messages.

The table in docs/store.md has the results asserted here.
"""

from __future__ import annotations

import shutil
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from pyrmq import Producer
from tests.interop import artifacts
from tests.interop.ask import await_registered
from tests.interop.cluster import broker, name_server
from tests.interop.store_sends import GET_MAX_OFFSET, Sender
from tests.interop.test_damaged_stores import PART, REFUSED, WHOLE, verdict
from tests.interop.test_timer_stores import SETTINGS, TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.interop_all, pytest.mark.timeout(240)]

COUNT = 100
FILE_BYTES, UNIT_BYTES = int(str(SETTINGS["mappedFileSizeTimerLog"])), 52
DELAY_S = 12.0
"""Longer than the writer needs to accept them and to stop."""
SECONDS = 15.0
"""Time that a broker may take to deliver overdue messages."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A store with waiting messages, after a clean stop and after kill -9."""
    artifacts.require_java()
    made = {}
    for end in ("clean", "kill"):
        store = tmp_path_factory.mktemp("timers") / end
        with name_server("ours", artifacts.VERSIONS[0]) as names:
            one = broker(
                "java",
                artifacts.VERSIONS[0],
                names.address,
                store_dir=store,
                properties={**SETTINGS, "timerRollWindowSlot": 1000},
            )
            try:
                one.start()
                await_registered(names.address, one.address)
                with Producer(name_server=names.address) as producer:
                    for number in range(COUNT):
                        producer.send(TOPIC, str(number).encode(), delay=DELAY_S)
                await_checkpoint(store)
                if end == "clean":
                    one.stop()
            finally:
                one.kill()
        made[end] = store
    return made


def await_checkpoint(store: Path) -> None:
    """Wait until the checkpoint, which is written every 100 ms, covers the units of all messages.

    Until then it counts them as read, but not as written.
    """
    full, left = divmod(COUNT, FILE_BYTES // UNIT_BYTES)
    deadline = time.monotonic() + DELAY_S
    while True:
        written = (store / "config" / "timercheck").read_bytes()[8:16]
        if int.from_bytes(written, "big") >= full * FILE_BYTES + left * UNIT_BYTES:
            return
        assert time.monotonic() < deadline
        time.sleep(0.1)


def nothing(_: Path) -> None:
    """Leave it as it is."""


def delete_wheel(store: Path) -> None:
    """Delete the wheel."""
    (store / "timerwheel").unlink()


def clear_wheel(store: Path) -> None:
    """Zero the wheel."""
    wheel = store / "timerwheel"
    with wheel.open("r+b") as file:
        size = wheel.stat().st_size
        file.truncate(0)
        file.truncate(size)


def shorten_wheel(store: Path) -> None:
    """Truncate the wheel to half."""
    wheel = store / "timerwheel"
    with wheel.open("r+b") as file:
        file.truncate(wheel.stat().st_size // 2)


def delete_log(store: Path) -> None:
    """Delete the timer's log."""
    shutil.rmtree(store / "timerlog")


def clear_log(store: Path) -> None:
    """Zero the newest file of the timer's log."""
    file = max((store / "timerlog").iterdir())
    file.write_bytes(bytes(file.stat().st_size))


def delete_check(store: Path) -> None:
    """Delete the checkpoint."""
    (store / "config" / "timercheck").unlink()


def spoil_check(store: Path) -> None:
    """Overwrite the checkpoint with random bytes."""
    (store / "config" / "timercheck").write_bytes(b"\x5a" * 4096)


def delivered(who: str, store: Path) -> int:
    """Return how many messages a broker delivers from a store, or that it does not start."""
    settings = {**SETTINGS, "timerRollWindowSlot": 1000}
    with name_server("ours", artifacts.VERSIONS[0]) as names:
        one = broker(
            who, artifacts.VERSIONS[0], names.address, store_dir=store, properties=settings
        )
        return verdict(one, lambda at: count(at) >= COUNT)


def count(address: str) -> int:
    """Return how many messages arrived: all, or those that arrive in time."""
    deadline = time.monotonic() + SECONDS
    with closing(Sender(address)) as sender:
        while True:
            found = 0
            for queue in range(8):
                asked = {"topic": TOPIC, "queueId": str(queue)}
                found += int((sender.ask(GET_MAX_OFFSET, asked).fields or {}).get("offset", 0))
            if found >= COUNT or time.monotonic() > deadline:
                return found
            time.sleep(0.2)


@pytest.mark.parametrize(
    ("end", "damage", "java", "ours"),
    [
        ("kill", nothing, WHOLE, WHOLE),
        ("clean", delete_wheel, WHOLE, WHOLE),
        ("kill", clear_wheel, WHOLE, WHOLE),
        ("clean", shorten_wheel, REFUSED, REFUSED),
        ("clean", delete_log, PART, WHOLE),
        ("kill", clear_log, PART, WHOLE),
        ("clean", delete_check, WHOLE, WHOLE),
        ("kill", spoil_check, PART, PART),
    ],
)
def test_both_brokers_on_the_same_damage(
    tmp_path: Path,
    whole: dict[str, Path],
    end: str,
    damage: Callable[[Path], None],
    java: int,
    ours: int,
) -> None:
    shutil.copytree(whole[end], tmp_path / "whole")
    damage(tmp_path / "whole")
    found = {}
    for who in ("java", "ours"):
        shutil.copytree(tmp_path / "whole", tmp_path / who)
        found[who] = delivered(who, tmp_path / who)
    assert found == {"java": java, "ours": ours}
