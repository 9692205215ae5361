"""Every byte of a store's log, queues and index, against the plain Python of `tests/reference`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.reference import store as reference
from tests.reference.record import crc

from pyrmq import Producer
from pyrmq.testing import cluster

SEGMENT, QUEUE_FILE, SLOTS, ENTRIES = 16 * 1024, 400, 20, 60

words = st.text(alphabet="abcXYZ019äö€", min_size=1, max_size=12)
messages = st.lists(
    st.tuples(
        st.sampled_from(["ref-a", "ref-b"]),
        st.binary(min_size=1, max_size=3000),
        st.none() | words,
        st.lists(words, max_size=3),
    ),
    min_size=1,
    max_size=60,
)


@pytest.mark.timeout(120)
@settings(
    max_examples=5,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(messages=messages)
def test_log_queues_and_index_have_the_bytes_of_the_reference(
    messages: list[tuple[str, bytes, str | None, list[str]]],
) -> None:
    with TemporaryDirectory() as directory:
        home = Path(directory)
        with (
            cluster(
                store=home,
                mapped_file_size_commit_log=SEGMENT,
                mapped_file_size_consume_queue=QUEUE_FILE,
                max_hash_slot_num=SLOTS,
                max_index_num=ENTRIES,
            ) as running,
            Producer(name_server=running.name_server, group="ref") as producer,
        ):
            for topic, body, tag, keys in messages:
                producer.send(topic, body, tags=tag, keys=keys)
        check(next(home.rglob("commitlog")).parent, messages)


def check(home: Path, messages: list[tuple[str, bytes, str | None, list[str]]]) -> None:
    assert all(len(data) == SEGMENT for _, data in reference.segments(home))
    records = list(reference.log(home))
    assert all(crc(record.body) == record.body_crc for record, _ in records)
    found = Counter((record.topic, record.body) for record, _ in records)
    assert found == Counter((topic, body) for topic, body, _, _ in messages)

    queues = reference.queues(records)
    written = home / "consumequeue"
    names = {(path.parent.name, int(path.name)) for path in written.glob("*/*")}
    assert names == set(queues)
    for (topic, queue), units in queues.items():
        files = sorted((written / topic / str(queue)).iterdir())
        assert [int(path.name) for path in files] == list(range(0, len(units), QUEUE_FILE))
        content = b"".join(path.read_bytes() for path in files)
        assert content == units.ljust(len(files) * QUEUE_FILE, b"\0")

    index = [path.read_bytes() for path in sorted((home / "index").glob("*"))]
    assert index == reference.index(records, SLOTS, ENTRIES)
