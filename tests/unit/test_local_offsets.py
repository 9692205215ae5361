"""The file of a broadcasting member: replaced whole, with a backup; damage is an error."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from pyrmq import ConfigError
from pyrmq.consumer.local_offsets import LocalOffsets

if TYPE_CHECKING:
    from pathlib import Path

JAVA = b"""{
\t"offsetTable":{{
\t\t"brokerName":"broker-a",
\t\t"queueId":3,
\t\t"topic":"orders"
\t}:42
\t}
}"""
"""As Java's `LocalFileOffsetStore` writes it."""


def test_what_java_wrote_is_read(tmp_path: Path) -> None:
    offsets = LocalOffsets(tmp_path, "10.0.0.9@DEFAULT", "kitchen")
    assert offsets.path == tmp_path / "10.0.0.9@DEFAULT" / "kitchen" / "offsets.json"
    assert offsets.read() == []
    offsets.path.parent.mkdir(parents=True)
    offsets.path.write_bytes(JAVA)
    assert offsets.read() == [(("orders", "broker-a", 3), 42)]


def test_the_backup_holds_what_was_there_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    offsets = LocalOffsets(tmp_path, "me", "g")
    offsets.write(lambda: JAVA)
    offsets.write(lambda: JAVA.replace(b"42", b"43"))
    assert offsets.read()[0][1] == 43
    for damaged in (b"", b"{", b'{"offsetTable":7}', b"\xff\xfe"):
        offsets.path.write_bytes(damaged)
        caplog.clear()
        assert offsets.read()[0][1] == 42, damaged
        assert "using the offsets of" in caplog.text
    offsets.path.unlink()
    assert offsets.read()[0][1] == 42, "the first write may have been cut off"
    offsets.path.write_bytes(b"{")
    offsets.path.with_name("offsets.json.bak").write_bytes(b"{")
    with pytest.raises(ConfigError, match="Restore it, or remove both"):
        offsets.read()


def test_threads_that_write_at_once_leave_a_whole_file(tmp_path: Path) -> None:
    offsets = LocalOffsets(tmp_path, "me", "g")
    texts = [JAVA.replace(b"42", str(number).encode()) for number in range(100)]

    def write(first: int) -> None:
        for text in texts[first::4]:
            offsets.write(lambda: text)  # noqa: B023 - called at once

    threads = [threading.Thread(target=write, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert 0 <= offsets.read()[0][1] < 100
    assert not [*tmp_path.rglob("*.tmp")]


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "me").write_text("in the way")
    with pytest.raises(OSError, match="me"):
        LocalOffsets(tmp_path, "me", "g").write(lambda: JAVA)


def test_a_second_member_with_the_same_file_is_warned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = LocalOffsets(tmp_path, "me", "g"), LocalOffsets(tmp_path, "me", "g")
    first.take()
    assert not first.path.parent.exists(), "a member that has written nothing leaves no folder"
    first.write(lambda: JAVA)
    assert not caplog.records
    second.take()
    assert "in use by another broadcasting member" in caplog.text
    first.release()
    caplog.clear()
    third = LocalOffsets(tmp_path, "me", "g")
    third.take()
    assert not caplog.records
    third.release()
    second.release()
