"""The warning about an address that clients elsewhere cannot reach."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from pyrmq import Broker
from pyrmq.broker.advertised import unreachable

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("address", "name_servers", "words"),
    [
        ("127.0.0.1:10911", "127.0.0.1:9876", None),
        ("127.0.0.1:10911", "localhost:9876;127.0.0.2:9876", None),
        ("127.0.0.1:10911", "127.0.0.1:9876;10.0.0.5:9876", "loopback"),
        ("[::1]:10911", "names.example:9876", "loopback"),
        ("172.17.0.3:10911", "127.0.0.1:9876", "container"),
        ("192.168.65.3:10911", "10.0.0.5:9876", "container"),
        ("172.18.0.3:10911", "10.0.0.5:9876", None),
        ("10.0.0.7:10911", "10.0.0.5:9876", None),
        ("127.0.0.1:10911", None, None),
        ("127.0.0.1:10911", "", None),
    ],
)
def test_an_address_is_judged(address: str, name_servers: str | None, words: str | None) -> None:
    why = unreachable(address, name_servers)
    assert (why is None) == (words is None)
    assert words is None or words in str(why)


def test_a_broker_warns_at_its_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.WARNING, logger="pyrmq"),
        Broker(
            listen_port=0,
            broker_ip1="172.17.0.9",
            namesrv_addr="127.0.0.1:1",
            store_path_root_dir=str(tmp_path),
            mapped_file_size_commit_log=1 << 20,
        ),
    ):
        pass
    (text,) = [text for text in caplog.messages if "brokerIP1" in text]
    assert text.startswith("the address 172.17.0.9:")
    assert "container's bridge network" in text
