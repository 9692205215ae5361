"""Names of rows for the exactly-once sink, and which of them a topic already has.

A row's name consists of the query, the batch, the partition, a hash of its content, and the number
of equal rows before it. So a partition that is computed again in another order has the same names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["PROPERTY", "Stamps", "missing"]

PROPERTY = "PYRMQ_TX"
"""The message property that holds a row's name."""


_NULL = np.uint64(0xD6E8FEB86659FD93)
"""Distinguishes a NULL from the value in its place."""


_MASK = 2**64 - 1

_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


class Stamps:
    """Names the rows of one task, table by table.

    Args:
        prefix: query, batch and partition.

    Example:
        >>> rows = pa.RecordBatch.from_pydict({"body": ["a", "a", "b"]})
        >>> first, second, third = Stamps("q.0.1").of(rows).to_pylist()
        >>> first.rpartition(".")[0] == second.rpartition(".")[0] != third.rpartition(".")[0]
        True
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.rows = 0
        self.digest = 0
        """Sum of the rows' hashes, which does not depend on their order and partitions."""
        self._seen = _Seen()

    def of(self, table: pa.RecordBatch) -> pa.Array:
        """Return the name of each row; equal rows are numbered in the order of the calls."""
        hashes = _hashes(table)
        self.rows += len(hashes)
        self.digest = (self.digest + int(_mixed(hashes).sum(dtype=np.uint64))) & _MASK
        counts = pa.array(self._seen.numbered(hashes), pa.int64()).cast(pa.string())
        return pc.binary_join_element_wise(
            pa.scalar(self.prefix), _hexadecimal(hashes), counts, pa.scalar(".")
        )


class _Seen:
    """The hashes of earlier rows, in sorted runs, each longer than the next."""

    def __init__(self) -> None:
        self._runs: list[np.ndarray] = []

    def numbered(self, hashes: np.ndarray) -> np.ndarray:
        """Add hashes; return how often each occurred before, in earlier calls and in this one."""
        new = np.sort(hashes)
        numbers = np.zeros(len(hashes), np.int64)
        if not len(hashes):
            return numbers
        if (new[1:] == new[:-1]).any():
            numbers += pd.Series(hashes).groupby(hashes).cumcount().to_numpy()
        for run in self._runs:
            # Few rows equal earlier ones: a search in order is fast.
            places = np.searchsorted(run, new)
            if (run[np.minimum(places, len(run) - 1)] == new).any():
                first = np.searchsorted(run, hashes, "left")
                numbers += np.searchsorted(run, hashes, "right") - first
        self._add(new)
        return numbers

    def _add(self, run: np.ndarray) -> None:
        """Add a sorted run; an earlier one is sorted again only when it doubles."""
        while self._runs and len(self._runs[-1]) <= len(run):
            # A stable sort of two sorted runs merges them.
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        self._runs.append(run)


def _hexadecimal(numbers: np.ndarray) -> pa.Array:
    """Return numbers in 16 digits each; no Python object is made for a row."""
    octets = numbers.astype(">u8").view(np.uint8)
    digits = np.stack([_DIGITS[octets >> 4], _DIGITS[octets & 15]], axis=1)
    ends = np.arange(0, 16 * len(numbers) + 1, 16, dtype=np.int32)
    return pa.StringArray.from_buffers(len(numbers), pa.py_buffer(ends), pa.py_buffer(digits))


def _mixed(hashes: np.ndarray) -> np.ndarray:
    """Spread hashes, so that sums of different rows differ."""
    mixed: np.ndarray = pd.util.hash_array(hashes)
    return mixed


def _hashes(table: pa.RecordBatch) -> np.ndarray:
    total = np.zeros(table.num_rows, dtype=np.uint64)
    for name in table.schema.names:
        column = table.column(name)
        hashes = pd.util.hash_array(_hashable(column), categorize=False)
        nulls = column.is_null().to_numpy(zero_copy_only=False)
        with np.errstate(over="ignore"):
            total = total * np.uint64(0x9E3779B97F4A7C15) + hashes + nulls * _NULL
    return total


def _hashable(array: pa.Array) -> np.ndarray:
    """Columns of numbers and times as numbers, all others as text or bytes."""
    kind = array.type
    if pa.types.is_nested(kind):
        return np.array([repr(value) for value in array.to_pylist()], dtype=object)
    if pa.types.is_timestamp(kind):
        array = array.cast(pa.int64())
    if not pa.types.is_primitive(array.type):
        if pa.types.is_string(array.type) or pa.types.is_binary(array.type):
            return np.asarray(array.fill_null("\0null").to_numpy(zero_copy_only=False))
        return np.array(
            ["\0null" if value is None else value for value in array.to_pylist()], dtype=object
        )
    # Numbers stay numbers in a column with a NULL: a row's name must not depend on other rows.
    zero = pa.scalar(0).cast(array.type)
    return np.asarray(array.fill_null(zero).to_numpy(zero_copy_only=False))


def missing(names: pa.Array, there: set[str]) -> Sequence[int]:
    """Return the rows whose names are not in the topic."""
    return [row for row, name in enumerate(names.to_pylist()) if name not in there]
