"""The JSON of positions: one form, versions, user offsets."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq._tables.errors import OffsetError
from pyrmq._tables.offsets import (
    Bounds,
    Mark,
    Position,
    Queue,
    parse_user,
    parse_version,
    resolve,
    to_json,
)

QUEUES = st.builds(
    Queue,
    st.text("abcXYZ-_%|0123456789", min_size=1, max_size=8),
    st.text(min_size=1, max_size=8),
    st.integers(0, 2**31 - 1),
)
OFFSETS = st.dictionaries(QUEUES, st.integers(0, 2**63 - 1), max_size=12)


NUMBERS = st.integers(0, 2**63 - 1)
MARKS = st.dictionaries(QUEUES, st.builds(Mark, NUMBERS, NUMBERS), max_size=12)
POSITIONS = st.builds(Position, OFFSETS, st.none() | OFFSETS, OFFSETS, st.none() | NUMBERS, MARKS)


@given(POSITIONS)
def test_positions_survive_json(position: Position) -> None:
    assert parse_version(json.loads(json.dumps(to_json(position)))) == position


def test_a_checkpoint_of_version_1_is_read() -> None:
    queue = Queue("t", "b", 0)
    written = {"t": {"b": {"0": 7}}, "@start": {"t": {"b": {"0": 3}}}, "@v": 1}
    assert parse_version(written) == Position({queue: 7}, {queue: 3})


@given(OFFSETS, st.randoms())
def test_the_same_positions_have_one_spelling(offsets: dict[Queue, int], random: object) -> None:
    shuffled = list(offsets.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert json.dumps(to_json(Position(dict(shuffled)))) == json.dumps(to_json(Position(offsets)))


def test_queues_stand_in_the_order_of_their_numbers() -> None:
    offsets = {Queue("t", "b", number): 0 for number in (10, 9, 1)}
    assert list(to_json(Position(offsets))["t"]["b"]) == ["1", "9", "10"]


def test_another_version_is_refused() -> None:
    with pytest.raises(OffsetError, match="version 3, this release reads versions 1 and 2"):
        parse_version({"t": {"b": {"0": 1}}, "@v": 3})
    with pytest.raises(OffsetError, match="version None"):
        parse_version({"n": 50})


@pytest.mark.parametrize(
    ("written", "error"),
    [
        ({"@marks": {"t": {"b": {"0": 5}}}}, "not a log position and time: 5"),
        ({"@marks": {"t": {"b": {"0": [5, -1]}}}}, "message before the offset: not an offset: -1"),
        ({"@since": "now"}, "start of the query: not an offset: 'now'"),
    ],
)
def test_a_damaged_checkpoint_is_refused(written: dict[str, object], error: str) -> None:
    with pytest.raises(OffsetError, match=error):
        parse_version({**written, "@v": 2})


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("[]", "expected a JSON object"),
        ('{"t": 5}', "topic t: expected a JSON object, found: 5"),
        ('{"t": {"b": {"x": 5}}}', "not a queue number: 'x'"),
        ('{"t": {"b": {"0": -3}}}', "not an offset: -3"),
        ('{"t": {"b": {"0": true}}}', "not an offset: True"),
        ('{"t": {"b": {"0": "5"}}}', "not an offset: '5'"),
        ('{"t": {"b": {"0": 9223372036854775808}}}', "not an offset"),
    ],
)
def test_user_offsets_of_another_shape_are_refused(text: str, error: str) -> None:
    with pytest.raises(OffsetError, match=error):
        parse_user(text, "startingOffsets")


def test_user_offsets_are_held_against_the_queues() -> None:
    a, b, c = (Queue("t", "b", number) for number in range(3))
    bounds = {a: Bounds(2, 9), b: Bounds(0, 4)}
    assert resolve({a: -2, b: -1}, bounds, "x") == {a: 2, b: 4}
    with pytest.raises(OffsetError, match="option x: does not exist: topic t, broker b, queue 2"):
        resolve({a: 2, b: 2, c: 2}, bounds, "x")
    with pytest.raises(OffsetError, match="option x: missing: topic t, broker b, queue 1"):
        resolve({a: 2}, bounds, "x")
