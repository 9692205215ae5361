"""Small configuration files: written completely or not at all, with a backup for a broken file."""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING

import pytest

from pyrmq.errors import ConfigError
from pyrmq.nameserver.kv_config import KvConfig
from pyrmq.server.files import read_or_backup, write_synced

if TYPE_CHECKING:
    from pathlib import Path


def test_the_old_file_stays_as_backup(tmp_path: Path) -> None:
    file = tmp_path / "new" / "kv.json"
    write_synced(file, b"1")
    write_synced(file, b"2")
    write_synced(file, b"3")
    assert file.read_bytes() == b"3"
    assert (tmp_path / "new" / "kv.json.bak").read_bytes() == b"2"
    assert sorted(entry.name for entry in file.parent.iterdir()) == ["kv.json", "kv.json.bak"]


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kv.json"
    write_synced(file, b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_synced(file, b"new")
    assert file.read_bytes() == b"old"


@pytest.mark.parametrize(
    "half", [b'{"configTable":{"N":{"k', b"", b"[]", b'{"configTable":{"N":1}}']
)
def test_the_backup_of_a_broken_file_is_taken_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, half: bytes
) -> None:
    file = tmp_path / "kvConfig.json"
    kv = KvConfig(file)
    kv.put("N", "k", "1")
    kv.put("N", "k", "2")
    file.write_bytes(half)
    with caplog.at_level(logging.WARNING):
        assert KvConfig(file).get("N", "k") == "1"
    assert f"the backup `{file}.bak` is used instead" in caplog.text


def test_without_a_readable_backup_nothing_starts(tmp_path: Path) -> None:
    file = tmp_path / "kvConfig.json"
    file.write_bytes(b"{")
    with pytest.raises(
        ConfigError, match=r"cannot read .*kvConfig\.json.*repair it, or move it away"
    ):
        KvConfig(file)


def test_neither_file_nor_backup_is_nothing(tmp_path: Path) -> None:
    assert read_or_backup(tmp_path / "none", bytes) is None


def test_the_file_has_apaches_form(tmp_path: Path) -> None:
    file = tmp_path / "kvConfig.json"
    kv = KvConfig(file)
    kv.put("ORDER_TOPIC_CONFIG", "orders", "broker-a:4;bröker:4")
    assert file.read_text(encoding="utf-8") == (
        '{"configTable":{"ORDER_TOPIC_CONFIG":{"orders":"broker-a:4;bröker:4"}}}'
    )


def test_values_survive_a_restart_and_deletes_too(tmp_path: Path) -> None:
    file = tmp_path / "kvConfig.json"
    kv = KvConfig(file)
    kv.put("N", "a", "1")
    kv.put("N", "b", "2")
    kv.delete("N", "a")
    kv.delete("M", "none")
    again = KvConfig(file)
    assert again.namespace("N") == {"b": "2"}
    assert again.get("N", "a") is None
    assert again.namespace("M") is None
    assert json.loads(file.read_bytes()) == {"configTable": {"N": {"b": "2"}}}


def test_the_order_configuration_is_told_at_once_and_on_change(tmp_path: Path) -> None:
    kv = KvConfig(tmp_path / "kvConfig.json")
    told: list[dict[str, str] | None] = []
    kv.watch_order(told.append)
    kv.put("N", "a", "1")
    kv.put("ORDER_TOPIC_CONFIG", "orders", "broker-a:4")
    kv.delete("ORDER_TOPIC_CONFIG", "orders")
    assert told == [None, {"orders": "broker-a:4"}, {}]


def test_a_change_that_cannot_be_written_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kv = KvConfig(tmp_path / "kvConfig.json")
    kv.put("N", "a", "1")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            kv.put("N", "a", "2")
    assert kv.get("N", "a") == "1"
