"""The plain-Python codec against frames of the real RocketMQ, and against itself."""

from __future__ import annotations

import hashlib
import string
import zlib
from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference import frame as wire
from tests.reference import golden, ids, java, properties, record

PULLS = (11, 361)
SENDS = (310,)
BATCH = 320
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
NAMES = st.text(string.ascii_letters + string.digits + "_-%|", min_size=1, max_size=60)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
HOSTS = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6))


def pulled_bodies() -> list[bytes]:
    """Return the bodies of answers that carry message records."""
    return [
        body
        for row in golden.frames()
        if row.request in PULLS and row.kind == "response" and (body := wire.decode(row.raw).body)
    ]


@pytest.mark.parametrize("row", golden.manifest()["frames"], ids=lambda row: row["file"])
def test_the_manifest_describes_its_file(row: dict[str, object]) -> None:
    data = (golden.GOLDEN / str(row["file"])).read_bytes()
    assert hashlib.sha256(data).hexdigest() == row["sha256"]
    entries = row["frames"]
    assert isinstance(entries, list)
    assert [len(raw) for raw in wire.split(data)] == [entry["size"] for entry in entries]


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7", "4.6.1"])
@pytest.mark.parametrize("serialize", ["JSON", "ROCKETMQ"])
def test_every_version_has_frames_of_both_header_forms(version: str, serialize: str) -> None:
    codes = {
        row.request
        for row in golden.frames()
        if (row.version, row.serialize) == (version, serialize)
    }
    assert codes >= {11, 14, 15, 34, 103, 105, 310, 320}


def test_every_golden_frame_encodes_back_to_its_bytes() -> None:
    wrong = [str(row) for row in golden.frames() if wire.encode(wire.decode(row.raw)) != row.raw]
    assert wrong == []


def test_recorded_records_encode_back_to_their_bytes_and_their_crc_holds() -> None:
    bodies = pulled_bodies()
    assert bodies
    for body in bodies:
        found = record.decode_all(body)
        assert b"".join(record.encode(one) for one in found) == body
        assert [one.body_crc for one in found] == [record.crc(one.body) for one in found]


def test_recorded_properties_encode_back_to_their_text() -> None:
    for body in pulled_bodies():
        for one in record.decode_all(body):
            # A message of a batch has WAIT twice and no last separator if a 4.x broker stored it.
            text = properties.encode(properties.decode(one.properties))
            assert set(text.split("\x02")) - {""} == set(one.properties.split("\x02")) - {""}
            if one.properties.endswith("\x02"):
                assert text == one.properties


def test_recorded_compressed_bodies_unpack_with_zlib() -> None:
    compressed = [
        one
        for body in pulled_bodies()
        for one in record.decode_all(body)
        if one.sys_flag & record.COMPRESSED and one.sys_flag & 0x700 in (0, 0x300)
    ]
    assert compressed
    assert {len(zlib.decompress(one.body)) for one in compressed} == {20_000}


def test_recorded_unique_ids_encode_back_to_their_text() -> None:
    found = [
        properties.decode(one.properties)["UNIQ_KEY"]
        for body in pulled_bodies()
        for one in record.decode_all(body)
    ]
    assert found
    for text in found:
        # In 4.x, each message of a batch names all messages of the batch.
        for part in text.split(","):
            assert ids.encode_unique_id(ids.decode_unique_id(part)) == part


def test_recorded_offset_ids_name_the_host_and_offset_of_the_record() -> None:
    answers = [
        wire.decode(row.raw)
        for row in golden.frames()
        if row.request == 310 and row.kind == "response"
    ]
    texts = [answer.fields["msgId"] for answer in answers if answer.code == 0 and answer.fields]
    assert texts
    for text in texts:
        value = ids.decode_offset_id(text)
        assert value.host == IPv4Address("127.0.0.1")
        assert ids.encode_offset_id(value) == text


def test_recorded_batches_encode_back_to_their_bytes() -> None:
    bodies = [
        wire.decode(row.raw).body
        for row in golden.frames()
        if row.request == BATCH and row.kind != "response"
    ]
    assert bodies
    for body in bodies:
        assert body is not None
        items = record.decode_batch(body)
        assert len(items) > 1
        assert record.encode_batch(items) == body


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("größe", 98762257),
        ("😀", 1772899),
    ],
)
def test_the_string_hash_is_that_of_java(text: str, value: int) -> None:
    assert java.string_hash(text) == value


def test_the_index_hash_of_the_smallest_number_is_zero() -> None:
    assert java.index_hash("polygenelubricants") == 0


@given(
    st.builds(
        wire.Frame,
        code=st.integers(-(2**15), 2**15 - 1),
        language=st.sampled_from(wire.LANGUAGES),
        version=st.integers(0, 2**15 - 1),
        opaque=INT32,
        flag=st.integers(0, 3),
        remark=st.none() | TEXT.filter(bool),
        fields=st.none() | st.dictionaries(NAMES, TEXT, min_size=1, max_size=6),
        body=st.none() | st.binary(min_size=1, max_size=60),
        serialize_type=st.sampled_from([wire.JSON, wire.ROCKETMQ]),
    )
)
def test_a_frame_comes_back_as_it_was(one: wire.Frame) -> None:
    assert wire.decode(wire.encode(one)) == one


@given(
    topic=NAMES,
    body=st.binary(max_size=60),
    text=st.dictionaries(NAMES, NAMES, max_size=4).map(properties.encode),
    numbers=st.tuples(INT32, INT32, INT64, INT64, INT64, INT32),
    born=HOSTS,
    store=HOSTS,
    magic=st.sampled_from([record.MAGIC_V1, record.MAGIC_V2]),
)
def test_a_record_comes_back_as_it_was(
    topic: str,
    body: bytes,
    text: str,
    numbers: tuple[int, int, int, int, int, int],
    born: IPv4Address | IPv6Address,
    store: IPv4Address | IPv6Address,
    magic: int,
) -> None:
    flags = (record.BORN_V6 if born.version == 6 else 0) | (
        record.STORE_V6 if store.version == 6 else 0
    )
    one = record.Record(
        topic=topic,
        body=body,
        properties=text,
        queue_id=numbers[0],
        flag=numbers[1],
        queue_offset=numbers[2],
        physical_offset=numbers[3],
        prepared_transaction_offset=numbers[4],
        reconsume_times=numbers[5],
        sys_flag=flags,
        born_host=born,
        store_host=store,
        magic=magic,
        body_crc=record.crc(body),
    )
    data = record.encode(one)
    assert record.decode(data) == (one, len(data))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_a_record_or_a_record_error(data: bytes) -> None:
    with pytest.raises(record.RecordError):
        record.decode(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0\0\0",
        b"\0\0\0\4\0\0\0\1",
        b"\0\0\0\4\2\0\0\0",
        b"\0\0\0\5\0\0\0\1x",
        b"\0\0\0\5\1\0\0\1x",
    ],
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(wire.FrameError):
        wire.decode(data)
