"""The exactly-once sink's files and names, without Spark."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from pyrmq._tables.errors import FenceError
from pyrmq._tables.offsets import Offsets, Queue
from pyrmq.spark.writing.fence import Begun, Fence
from pyrmq.spark.writing.stamps import Stamps, missing

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

A, OTHER = Queue("t", "b", 0), Queue("t", "c", 0)


def asks(end: int) -> Offsets:
    return {A: end}


def logged(folder: Path, *batches: int) -> None:
    (folder / "offsets").mkdir(exist_ok=True)
    for batch in batches:
        (folder / "offsets" / str(batch)).write_text("v1")


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_only_a_batch_that_was_begun_before_is_read_back(tmp_path: Path, scheme: str) -> None:
    fence = Fence(f"{scheme}{tmp_path}", "t")
    logged(tmp_path, 0)
    assert fence.begin(lambda _: asks(5)) == Begun(-1, {A: 5}, again=False, brokers=("b",))
    # The driver died: the batch is planned again, and the topic has grown.
    again = Fence(str(tmp_path), "t").begin(lambda _: asks(9))
    assert again == Begun(-1, {A: 5}, again=True, brokers=("b",))
    fence.commit(0)
    assert fence.begin(lambda _: asks(9)) == Begun(0, {A: 9}, again=False, brokers=("b",))
    logged(tmp_path, 1)
    fence.commit(1)
    assert {path.name for path in (tmp_path / "pyrmq-sink").iterdir()} == {"1.fence"}


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    logged(tmp_path, 0)
    Fence(str(tmp_path), "t").commit(0)
    with pytest.raises(FenceError, match="belongs to a sink of topic t, this one writes other"):
        Fence(str(tmp_path), "other").begin(lambda _: asks(0))
    (tmp_path / "offsets" / "0").unlink()
    with pytest.raises(FenceError, match="batch 0 was sent, but the checkpoint has no such batch"):
        Fence(str(tmp_path), "t").begin(lambda _: asks(0))
    (tmp_path / "pyrmq-sink" / "0.fence").write_text('{"topic"')
    with pytest.raises(FenceError, match=r"0\.fence cannot be read"):
        Fence(str(tmp_path), "t").begin(lambda _: asks(0))


def test_a_batch_that_is_another_one_is_not_left_out(tmp_path: Path) -> None:
    """The checkpoint was restored by a batch, which has the same number and other rows now."""
    logged(tmp_path, 0, 1)
    fence = Fence(str(tmp_path), "t")
    fence.commit(0)
    fence.commit(1)
    assert fence.begin(lambda _: asks(9)).done == 1
    (tmp_path / "offsets" / "1").write_text("v1 other")
    with pytest.raises(FenceError, match="batch 1 is another one: the checkpoint was restored"):
        fence.begin(lambda _: asks(9))
    # A fence of an earlier release has no hash.
    (tmp_path / "pyrmq-sink" / "1.fence").write_text('{"topic": "t"}')
    assert Fence(str(tmp_path), "t").begin(lambda _: asks(9)).done == 1


def test_a_fence_of_foreach_batch_says_which_rows_it_had(tmp_path: Path) -> None:
    fence = Fence(str(tmp_path), "t", of_query=False)
    fence.commit(3, "q", "r", (20, "ab"))
    found = fence.begin(lambda _: asks(1))
    assert found == Begun(3, {A: 1}, False, "q", "r", (20, "ab"), ("b",))


def test_brokers_that_a_name_server_does_not_know_yet_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name server that was started again learns of its brokers one by one."""
    fence = Fence(str(tmp_path), "t", of_query=False)
    asked: list[bool] = []

    def ends(*queues: Queue) -> Callable[[bool], Offsets]:
        def ask(is_known: bool) -> Offsets:  # noqa: FBT001 - as the fence calls it
            asked.append(is_known)
            return dict.fromkeys(queues, 5)

        return ask

    assert fence.begin(ends(A, OTHER)).brokers == ("b", "c")
    fence.commit(0)
    begun = fence.begin(ends(A))
    assert (begun.ends, begun.brokers, asked) == ({A: 5}, ("b", "c"), [False, True])
    # The batch runs again, in another process, and waits for both.
    assert Fence(str(tmp_path), "t", of_query=False).begin(ends(A)).brokers == ("b", "c")
    fence.commit(1)
    monkeypatch.setattr("pyrmq.spark.writing.fence._FORGET_MS", -1)
    assert fence.begin(ends(A)).brokers == ("b",)


def test_the_digest_of_rows_depends_on_neither_order_nor_partition() -> None:
    numbers = [number % 70 for number in range(200)]

    def digest(*parts: list[int]) -> int:
        total = 0
        for part in parts:
            stamps = Stamps(f"q.1.{len(part)}")
            stamps.of(rows(part))
            total += stamps.digest
        return total % 2**64

    whole = digest(numbers)
    assert digest(numbers[::-1]) == whole
    assert digest(numbers[:33], numbers[33:]) == whole
    assert digest(numbers[1:]) != whole
    assert digest([*numbers[1:], 71]) != whole


def rows(numbers: list[int]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "body": pa.array([f"m{number}".encode() for number in numbers], pa.binary()),
            "keys": [None if number % 3 else "k" for number in numbers],
            "properties": pa.array(
                [[("n", str(number))] for number in numbers], pa.map_(pa.string(), pa.string())
            ),
            "queueId": pa.array([number % 4 for number in numbers], pa.int32()),
        }
    )


def test_a_partition_in_another_order_has_the_same_names() -> None:
    numbers = [number % 70 for number in range(200)]
    shuffled = numbers.copy()
    random.Random(1).shuffle(shuffled)

    def names(order: list[int], size: int) -> list[tuple[int, str]]:
        stamps = Stamps("q.1.0")
        found: list[tuple[int, str]] = []
        for first in range(0, len(order), size):
            part = order[first : first + size]
            found += zip(part, stamps.of(rows(part)).to_pylist(), strict=True)
        return found

    first, second = names(numbers, 200), names(shuffled, 33)
    assert sorted(first) == sorted(second)
    assert len({name for _, name in first}) == 200
    assert all(name.startswith("q.1.0.") for _, name in first)


def test_the_name_of_a_row_does_not_depend_on_a_null_beside_it() -> None:
    columns = {
        "body": pa.array(["a", "b", "c", "d", "d"]),
        "queueId": pa.array([1, 2, None, 0, None], pa.int32()),
        "deliverAt": pa.array([None, 1, 2, 3, 3], pa.timestamp("us", tz="UTC")),
        "delay": pa.array([0.5, None, 1.5, 2.5, 2.5]),
    }
    table = pa.RecordBatch.from_pydict(columns)
    whole = Stamps("q").of(table).to_pylist()
    by_row = Stamps("q")
    assert [by_row.of(table.slice(row, 1))[0].as_py() for row in range(5)] == whole
    # NULL and 0 are different rows.
    assert len({name.rpartition(".")[0] for name in whole}) == 5


def test_the_name_of_a_row_is_the_same_in_every_release() -> None:
    """A batch that another release has begun is read back by its names."""
    columns = {
        "body": pa.array([b"tea", None, b"\x00\xff", b"tea"], pa.binary()),
        "keys": ["k", "ü", None, "k"],
        "queueId": pa.array([1, None, 3, 1], pa.int32()),
    }
    assert Stamps("q.1.0").of(pa.RecordBatch.from_pydict(columns)).to_pylist() == [
        "q.1.0.39f8d0a1b2e5cf42.0",
        "q.1.0.f7cb21437bc553f2.0",
        "q.1.0.cdd6683d7e0198d7.0",
        "q.1.0.39f8d0a1b2e5cf42.1",
    ]


def test_rows_that_are_there_are_left_out() -> None:
    table = rows([1, 2, 2, 3])
    names = Stamps("q.0.0").of(table)
    there = {names[0].as_py(), names[1].as_py()}
    assert missing(names, there) == [2, 3]
    assert Stamps("q.0.1").of(table) != names
