"""A broker that is killed with -9 under load, again and again: nothing acknowledged is lost.

The default run has few rounds; `pytest tests/e2e/test_kill.py --kill-rounds=200` has many.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from tests.e2e.kill import Known, Senders, check, read_all
from tests.interop.ask import await_registered
from tests.interop.ours import OurBroker, OurNameServer

if TYPE_CHECKING:
    from pathlib import Path

SECONDS_A_ROUND = 30
LEAST = 200


@pytest.mark.faults
@pytest.mark.parametrize("level", ["memory", "local"])
@pytest.mark.timeout(3600)
def test_what_was_acknowledged_outlives_kill_9(
    tmp_path: Path, pytestconfig: pytest.Config, level: str
) -> None:
    rounds = int(pytestconfig.getoption("--kill-rounds"))
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 (pytest shows it for failing tests only)
    dice = random.Random(seed)
    options = {
        "mappedFileSizeCommitLog": 256 * 1024,
        "mappedFileSizeConsumeQueue": 20 * 500,
        "flushDiskType": {"memory": "ASYNC_FLUSH", "local": "SYNC_FLUSH"}[level],
    }
    known = Known()
    with OurNameServer() as names:
        port = None
        for number in range(rounds + 1):
            one = OurBroker(
                names.address, store_dir=tmp_path / "store", port=port, properties=options
            )
            port = one.port
            one.start(timeout=SECONDS_A_ROUND)
            try:
                await_registered(names.address, one.address)
                if number:
                    check(known, read_all(names.address))
                if number == rounds:
                    return
                senders = Senders(names.address, known, number)
                wanted = LEAST + dice.randrange(LEAST)
                try:
                    senders.await_acknowledged(wanted, SECONDS_A_ROUND)
                finally:
                    one.kill()
                    senders.end()
            finally:
                one.kill()
