"""Topics as Arrow tables without Spark, and the command line's export and import."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from pyrmq import Producer, arrow
from pyrmq._tables.batch import planned
from pyrmq._tables.errors import SchemaError
from pyrmq._tables.messages import encode
from pyrmq._tables.options.topic_options import Options
from pyrmq._tables.worker import Part, batches
from pyrmq.arrow.progress import shown
from pyrmq.cli.main import main
from pyrmq.cli.table.files import opened, writer
from pyrmq.errors import ConfigError, MessageError, TopicNotFound
from tests.spark.topic import Topic

if TYPE_CHECKING:
    from pathlib import Path

    from pyrmq.testing import Cluster

pytestmark = pytest.mark.timeout(60)
NUMBERS = itertools.count(1)
MAP = pa.map_(pa.string(), pa.string())


def created(running: Cluster, name: str = "") -> str:
    """Create a topic that is routable, and return its name."""
    topic = Topic(
        name or f"Arrow{next(NUMBERS)}", running.name_server, running.brokers[0].address
    ).create()
    topic.connections.close()
    return topic.name


@pytest.fixture
def topic(rocketmq_session: Cluster) -> str:
    """A new topic with twenty messages; every other one has a tag."""
    name = created(rocketmq_session)
    with Producer(name_server=rocketmq_session.name_server) as producer:
        for number in range(20):
            producer.send(
                name,
                f"body {number}",
                keys=f"k{number}",
                tags="even" if number % 2 == 0 else None,
                properties={"n": str(number)},
            )
    deadline = time.monotonic() + 20
    while arrow.read(name, name_server=rocketmq_session.name_server).num_rows < 20:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return name


def bodies(table: pa.Table) -> list[str]:
    """Return the bodies as text, in the order of their numbers."""
    texts = [body.decode() for body in table.column("body").to_pylist()]
    return sorted(texts, key=lambda text: int(text.split()[1]))


def test_a_topic_is_a_table(rocketmq_session: Cluster, topic: str) -> None:
    at = rocketmq_session.name_server
    table = arrow.read(topic, name_server=at)
    assert bodies(table) == [f"body {number}" for number in range(20)]
    row = table.slice(0, 1).to_pylist()[0]
    assert row["topic"] == topic
    assert dict(row["properties"])["n"] == row["body"].decode().removeprefix("body ")
    tagged = arrow.read(topic, name_server=at, tags="even", columns=["TAGS", "body"])
    assert tagged.column_names == ["tags", "body"]
    assert tagged.column("tags").to_pylist() == ["even"] * 10
    assert arrow.read(topic, name_server=at, limit=7).num_rows == 7


def test_times_cut_a_table(rocketmq_session: Cluster, topic: str) -> None:
    at = rocketmq_session.name_server
    assert arrow.read(topic, name_server=at, since="1h").num_rows == 20
    assert arrow.read(topic, name_server=at, until="1h").num_rows == 0
    stored = arrow.read(topic, name_server=at, columns=["storeTimestamp"]).column(0).to_pylist()
    middle = sorted(stored)[10]
    later = arrow.read(topic, name_server=at, since=middle).num_rows
    earlier = arrow.read(topic, name_server=at, until=middle).num_rows
    assert later == sum(moment >= middle for moment in stored)
    assert earlier + later == 20
    with pytest.raises(ConfigError, match="has no time zone"):
        arrow.read(topic, name_server=at, since=datetime.now(UTC).replace(tzinfo=None))


def test_mistakes_are_named(rocketmq_session: Cluster, topic: str) -> None:
    at = rocketmq_session.name_server
    with pytest.raises(TopicNotFound, match="topic Nothing: does not exist"):
        arrow.read("Nothing", name_server=at)
    with pytest.raises(SchemaError, match="column bdy: unknown, did you mean body"):
        arrow.read(topic, name_server=at, columns=["bdy"])
    with pytest.raises(ConfigError, match="column value: unknown, in RocketMQ it is body"):
        arrow.send(pa.table({"value": ["x"]}), topic, name_server=at)
    with pytest.raises(MessageError, match=r"'body': None.*the body is NULL"):
        arrow.send(pa.table({"body": pa.array([None], pa.string())}), topic, name_server=at)


def test_a_table_is_sent_and_followed(rocketmq_session: Cluster) -> None:
    at = rocketmq_session.name_server
    name = created(rocketmq_session)
    arrow.send(pa.table({"body": ["body 0"]}), name, name_server=at)
    followed: list[str] = []

    def follow() -> None:
        for batch in arrow.follow(name, name_server=at, since=0, columns=["body"]):
            followed.extend(bodies(pa.Table.from_batches([batch])))
            if len(followed) >= 3000:
                return

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    table = pa.table({"body": [f"body {number}" for number in range(1, 3000)]})
    assert arrow.send(table, name, name_server=at) == 2999
    thread.join(30)
    assert sorted(followed) == sorted(f"body {number}" for number in range(3000))


def test_columns_of_other_libraries_are_taken(rocketmq_session: Cluster) -> None:
    name = created(rocketmq_session)
    table = pa.table(
        {
            "body": pa.array(["a", "b", "c"], pa.string_view()),
            "tags": pa.array(["hot", None, "hot"]).dictionary_encode(),
            "keys": pa.array([["k1", "k2"], [], None], pa.list_(pa.string_view())),
            "queueId": pa.array([1, 1, 1], pa.int64()),
        }
    )
    assert arrow.send(table, name, name_server=rocketmq_session.name_server) == 3
    found = arrow.read(
        name, name_server=rocketmq_session.name_server, columns=["queueId", "body", "tags", "keys"]
    )
    assert found.sort_by("body").to_pylist() == [
        {"queueId": 1, "body": b"a", "tags": "hot", "keys": "k1 k2"},
        {"queueId": 1, "body": b"b", "tags": None, "keys": None},
        {"queueId": 1, "body": b"c", "tags": "hot", "keys": None},
    ]
    wide = table.set_column(3, "queueId", pa.array([2**40] * 3))
    with pytest.raises(ConfigError, match="column queueId"):
        arrow.send(wide, name, name_server=rocketmq_session.name_server)


def test_a_slice_of_a_large_chunk_takes_only_its_own_memory() -> None:
    rows = 20_000
    whole = pa.record_batch(
        {
            "body": [b"x" * 100] * rows,
            "properties": pa.array([[("n", str(i))] for i in range(rows)], MAP),
        }
    )
    names = {"body": "body", "properties": "properties"}
    part = encode(whole.slice(rows // 2, 100), names)
    assert part.rows == 100
    assert sum(len(buffer) for buffer in part.body if isinstance(buffer, bytes)) < 20_000
    assert part.body[2] == b"x" * 100 * 100
    assert part.pairs is not None
    values = part.pairs[4]
    assert isinstance(values, tuple)
    assert b"".join(b for b in values if isinstance(b, bytes)).endswith(b"10099")


def test_a_long_read_shows_its_progress_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = pa.record_batch({"body": ["x"] * 10})
    moments = itertools.count(0.0, 0.8)
    monkeypatch.setattr("pyrmq.arrow.progress.monotonic", lambda: next(moments))
    for is_terminal in (False, True):
        monkeypatch.setattr("sys.stderr.isatty", lambda known=is_terminal: known)
        assert len(list(shown(iter([rows] * 3), 40))) == 3
        shown_text = capsys.readouterr().err
        assert ("20 of at most 40 rows" in shown_text) == is_terminal
        assert shown_text.endswith("\r\x1b[K") == is_terminal


def test_a_follower_begins_where_it_was_called(rocketmq_session: Cluster) -> None:
    at = rocketmq_session.name_server
    name = created(rocketmq_session)
    followed = arrow.follow(name, name_server=at, columns=["body"])
    arrow.send(pa.table({"body": ["body 1"]}), name, name_server=at)
    table = pa.Table.from_batches([next(batch for batch in followed if batch.num_rows)])
    assert bodies(table) == ["body 1"]


def test_a_body_as_text_is_so_in_any_case(rocketmq_session: Cluster) -> None:
    at = rocketmq_session.name_server
    name = created(rocketmq_session)
    arrow.send(pa.table({"body": [b"\xff\x41"]}), name, name_server=at)
    options = Options.parse({"topic": name, "nameServer": at}, batch=True)
    schema = pa.schema([("BODY", pa.string())])
    deadline = time.monotonic() + 20
    rows: list[str] = []
    while not rows:
        assert time.monotonic() < deadline
        tasks, addresses = planned(options)
        parts = [Part(addresses[one.queue.broker], one) for task in tasks for one in task]
        for batch in batches(options, schema, parts, away_ms=5000):
            rows += batch.column(0).to_pylist()
    assert rows == ["\\xffA"]


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv", "jsonl"])
def test_a_topic_goes_to_a_file_and_back(
    rocketmq_session: Cluster,
    topic: str,
    tmp_path: Path,
    kind: str,
    capsys: Any,  # noqa: ANN401
) -> None:
    at = rocketmq_session.name_server
    file, copy = tmp_path / f"rows.{kind}", created(rocketmq_session)
    assert main(["export", topic, str(file), "-n", at, "--brokers", "broker-a"]) == 0
    assert capsys.readouterr().out == "exported 20 messages\n"
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    assert main(["import", str(file), copy, "-n", at, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["messages"] == 20
    deadline = time.monotonic() + 20
    while (table := arrow.read(copy, name_server=at)).num_rows < 20:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert bodies(table) == [f"body {number}" for number in range(20)]
    for row in table.to_pylist():
        number = row["body"].decode().removeprefix("body ")
        assert row["keys"] == f"k{number}"
        assert row["tags"] == ("even" if int(number) % 2 == 0 else None)
        assert dict(row["properties"])["n"] == number


def test_the_export_takes_a_time_a_tag_and_columns(
    rocketmq_session: Cluster, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = rocketmq_session.name_server
    stored = arrow.read(topic, name_server=at, columns=["storeTimestamp"]).column(0).to_pylist()
    middle = sorted(stored)[10].isoformat()
    later = sum(moment.isoformat() >= middle for moment in stored)
    for words, count in (
        (["--since", "1h"], 20),
        (["--until", "1h"], 0),
        (["--since", middle], later),
        (["--until", middle], 20 - later),
        (["--tags", "even", "--since", "1h", "--columns", "keys,body"], 10),
    ):
        file = tmp_path / "rows.parquet"
        assert main(["export", topic, str(file), "-n", at, "--overwrite", *words]) == 0
        assert capsys.readouterr().out == f"exported {count} messages\n", words
        assert pq.read_table(file).num_rows == count
    assert pq.read_table(file).column_names == ["keys", "body"]


def test_other_libraries_read_a_topic_by_the_c_stream(
    rocketmq_session: Cluster, topic: str
) -> None:
    at = rocketmq_session.name_server

    def scanned() -> pa.RecordBatchReader:
        return arrow.scan(topic, name_server=at, columns=["body", "tags"])

    class Other:
        """Has nothing of pyarrow's, as polars and duckdb."""

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return scanned().__arrow_c_stream__(requested_schema)

    assert bodies(pa.table(Other())) == [f"body {number}" for number in range(20)]
    frame = scanned().read_pandas()
    assert (list(frame.columns), len(frame)) == (["body", "tags"], 20)


def test_a_directory_is_exported_without_its_broker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests.spark.test_read_log import unpacked

    root, messages = unpacked("4.9.7-kill", tmp_path)
    file = tmp_path / "all.parquet"
    assert main(["export", str(root), str(file)]) == 0
    assert f"exported {len(messages)} messages" in capsys.readouterr().out
    assert pq.read_table(file).num_rows == len(messages)
    some = tmp_path / "some.jsonl"
    words = ["export", str(root), str(some), "--topics", "Tagged,Single", "--columns", "topic"]
    assert main(words) == 0
    topics = [json.loads(line)["topic"] for line in some.read_text().splitlines()]
    expected = [one["topic"] for one in messages if one["topic"] in {"Tagged", "Single"}]
    assert sorted(topics) == sorted(expected)
    assert main(["export", str(root), str(file)]) == 2
    assert "exists: name another file, or use --overwrite" in capsys.readouterr().err
    assert main(["export", str(root), str(file), "--overwrite"]) == 0
    file.unlink()
    assert main(["export", str(tmp_path / "nothing"), str(file)]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert main(["export", "orders", str(file), "--topics", "a"]) == 2
    assert "--topics" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["parquet", "arrow", "jsonl", "csv"])
def test_what_is_in_messages_survives_a_file(
    rocketmq_session: Cluster, tmp_path: Path, kind: str
) -> None:
    at = rocketmq_session.name_server
    name, copy = created(rocketmq_session), created(rocketmq_session)
    bodies = [bytes(range(256)), b"a\r\nb\rc\nd", b"q\"s,;'", b" lead", b"0012", b"x" * 3_000_000]
    tags = [None, "0012", "NULL", "true", "\u00e9", "NaN"]
    pairs = [[("p", "1")], None, [("q", "\x7f'\"\n\t")], [("\u00e9", "\u00fc")], None, [("e", "x")]]
    table = pa.table(
        {
            "body": bodies,
            "tags": tags,
            "properties": pa.array(pairs, pa.map_(pa.string(), pa.string())),
        }
    )
    arrow.send(table, name, name_server=at)
    file = tmp_path / f"rows.{kind}"
    assert main(["export", name, str(file), "-n", at]) == 0
    assert main(["import", str(file), copy, "-n", at]) == 0

    def held(topic: str) -> list[tuple[bytes, str | None, dict[str, str]]]:
        rows = arrow.read(topic, name_server=at).to_pylist()
        own = {name for given in pairs for name, _ in given or []}
        return sorted(
            (row["body"], row["tags"], {k: v for k, v in row["properties"] if k in own})
            for row in rows
        )

    deadline = time.monotonic() + 20
    while len(held(copy)) < len(bodies):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert held(copy) == held(name)


def test_wrong_files_are_refused(tmp_path: Path, capsys: Any) -> None:  # noqa: ANN401
    assert main(["export", "T", str(tmp_path / "rows.xls")]) == 2
    assert "must end in .parquet, .arrow, .csv, .jsonl" in capsys.readouterr().err
    lines = tmp_path / "rows.jsonl"
    lines.write_text('{"body": "x"}\n{"text": "y"}\n')
    assert main(["import", str(lines), "T"]) == 2
    assert f"{lines}:2: expected a JSON object with body or bodyBase64" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("a.jsonl", b'{"body":"x","tags":5}', "a.jsonl:1: tags: expected a string, found: 5"),
        ("a.jsonl", b'{"body":{"id":1}}', "a.jsonl:1: body: expected a string"),
        ("a.jsonl", b'{"bodyBase64":"!!!"}', "a.jsonl:1: bodyBase64: "),
        (
            "a.jsonl",
            b'{"body":"x","properties":{"n":5}}',
            "properties: expected an object of strings",
        ),
        ("a.jsonl", b'{"body":"\xff"}', "is not UTF-8"),
        ("a.parquet", b"hello", "is not a .parquet file"),
        ("a.arrow", b"hello", "is not a .arrow file"),
        ("a.csv", b'body,tags\n"a,b\nc', "is not CSV: unexpected end"),
        ("a.csv", b"text,tags\na,b\n", "a.csv:1: no column body: there are text, tags"),
        ("a.csv", b"body,tags\na\n", "a.csv:2: expected 2 cells"),
        ("a.csv", b"body,properties\na,b\n", "a.csv:2: properties: not a JSON object"),
    ],
)
def test_a_file_that_is_wrong_is_an_error_of_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    rocketmq_session: Cluster,
    name: str,
    content: bytes,
    text: str,
) -> None:
    (tmp_path / name).write_bytes(content)
    assert main(["import", str(tmp_path / name), "T", "-n", rocketmq_session.name_server]) == 2
    assert text in capsys.readouterr().err


def test_a_column_that_the_file_lacks_is_not_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"body": "x"}\n')
    assert main(["import", str(file), "T", "-n", "h:1", "--columns", "body,tag"]) == 2
    assert "has no column tag: there are body, tags, keys" in capsys.readouterr().err


def test_large_bodies_are_read_in_small_batches(tmp_path: Path) -> None:
    table = pa.table({"body": [bytes([n]) * 2_000_000 for n in range(10)]})
    pq.write_table(table, tmp_path / "rows.parquet")
    with pa.ipc.new_file(str(tmp_path / "rows.arrow"), table.schema) as stream:
        stream.write_table(table)
    with writer(tmp_path / "rows.csv", ".csv", table.schema) as write:
        write(table.to_batches()[0])
    for kind in ("parquet", "arrow", "csv"):
        _, batches = opened(tmp_path / f"rows.{kind}")
        sizes = [batch.num_rows for batch in batches]
        assert (sum(sizes), max(sizes)) == (10, 5 if kind == "csv" else 4)


def test_arrow_needs_neither_spark_nor_pandas() -> None:
    program = (
        "import sys; sys.modules['pyspark'] = sys.modules['pandas'] = None\n"
        "from pyrmq import arrow; arrow.read, arrow.send; print('fine')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=50
    )
    assert done.stdout == "fine\n", done.stderr
