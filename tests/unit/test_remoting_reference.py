"""Our codec against the plain-Python one and against recorded frames, in both directions."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq.errors import RmqError
from pyrmq.remoting import Command
from tests.reference import frame as wire
from tests.reference import golden

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
NAMES = st.text(string.ascii_letters + string.digits + "_-%|", min_size=1, max_size=40)
INT32 = st.integers(-(2**31), 2**31 - 1)
FORMS = {wire.JSON: "JSON", wire.ROCKETMQ: "ROCKETMQ"}

FRAMES = st.builds(
    wire.Frame,
    code=st.integers(-(2**15), 2**15 - 1),
    language=st.sampled_from(wire.LANGUAGES),
    version=st.integers(0, 2**15 - 1),
    opaque=INT32,
    flag=st.integers(0, 3),
    remark=st.none() | TEXT.filter(bool),
    fields=st.dictionaries(NAMES, TEXT, min_size=1, max_size=6),
    body=st.none() | st.binary(min_size=1, max_size=80),
    serialize_type=st.sampled_from([wire.JSON, wire.ROCKETMQ]),
)


def ours(one: wire.Frame) -> Command:
    """Return our command for the reference's frame."""
    return Command(
        one.code,
        dict(one.fields or {}),
        one.body,
        remark=one.remark,
        opaque=one.opaque,
        flag=one.flag,
        language=one.language,
        version=one.version,
        serialize_type=FORMS[one.serialize_type],
    )


def parts(one: Command) -> tuple[object, ...]:
    """Return all parts of our command."""
    head = (one.code, one.language, one.version, one.opaque, one.flag, one.remark)
    return (*head, list(one.fields.items()), one.body, one.serialize_type)


def parts_of_frame(one: wire.Frame) -> tuple[object, ...]:
    """Return the same parts of the reference's frame."""
    head = (one.code, one.language, one.version, one.opaque, one.flag, one.remark)
    fields = list((one.fields or {}).items())
    return (*head, fields, one.body, FORMS[one.serialize_type])


def decoded(data: bytes) -> tuple[Command, int]:
    """Decode a whole frame."""
    found = Command.decode(data)
    assert found is not None
    return found


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7", "4.6.1"])
@pytest.mark.parametrize("serialize", ["JSON", "ROCKETMQ"])
def test_golden_frames_say_the_same_to_both_codecs_and_come_back_as_they_were(
    version: str, serialize: str
) -> None:
    rows = [row for row in golden.frames() if (row.version, row.serialize) == (version, serialize)]
    assert len(rows) > 100
    for row in rows:
        command, used = decoded(row.raw)
        assert used == len(row.raw), str(row)
        assert parts(command) == parts_of_frame(wire.decode(row.raw)), str(row)
        assert command.encode() == row.raw, str(row)


@given(FRAMES)
def test_what_the_reference_writes_we_read(one: wire.Frame) -> None:
    data = wire.encode(one)
    command, used = decoded(data)
    assert used == len(data)
    assert parts(command) == parts_of_frame(one)


@given(FRAMES)
def test_what_we_write_the_reference_reads(one: wire.Frame) -> None:
    assert wire.decode(ours(one).encode()) == one


@given(FRAMES)
def test_both_write_the_same_bytes(one: wire.Frame) -> None:
    assert ours(one).encode() == wire.encode(one)


@given(FRAMES, st.binary(max_size=20))
def test_bytes_after_a_frame_are_left_alone(one: wire.Frame, rest: bytes) -> None:
    data = wire.encode(one)
    assert decoded(data + rest)[1] == len(data)


@given(FRAMES, st.data())
def test_the_beginning_of_a_frame_is_no_frame_yet(one: wire.Frame, data: st.DataObject) -> None:
    whole = wire.encode(one)
    assert Command.decode(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None


@given(FRAMES, st.data())
def test_a_damaged_frame_is_read_as_the_reference_reads_it_or_refused(
    one: wire.Frame, data: st.DataObject
) -> None:
    whole = bytearray(wire.encode(one))
    place = data.draw(st.integers(4, len(whole) - 1))
    whole[place] = data.draw(st.integers(0, 255))
    try:
        found = Command.decode(bytes(whole))
    except RmqError:
        return
    assert found is not None
    try:
        theirs = wire.decode(bytes(whole))
    except (wire.FrameError, ValueError, KeyError):
        return
    # Our reader is lenient: a header that lost a member's name still has its other members.
    assert (found[0].code, found[0].body) == (theirs.code, theirs.body)


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\0",
        b"\xff\xff\xff\xff\0\0\0\0",
        b"\x7f\xff\xff\xff\0\0\0\0",
        b"\0\0\0\4\0\0\0\1",
        b"\0\0\0\4\2\0\0\0",
        b"\0\0\0\5\0\0\0\1x",
        b"\0\0\0\5\1\0\0\1x",
    ],
)
def test_bytes_that_can_never_become_a_frame_are_refused(data: bytes) -> None:
    with pytest.raises(RmqError):
        Command.decode(data)
