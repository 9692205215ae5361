"""SQL over topics, JSON bodies, and what executors can use."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

import pyrmq.spark
from pyrmq._tables.errors import SchemaError
from pyrmq._tables.schema import COLUMNS
from pyrmq.cli.main import main
from pyrmq.errors import ConfigError
from pyrmq.spark.checks import examine_executors
from pyrmq.spark.query import _named, sql, used_columns
from tests.spark.topic import Sent, Topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tests.spark.conftest import Site

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture
def orders(topic: Topic) -> Topic:
    """A topic with bodies that fit a schema and some that do not."""
    bodies = [b'{"id":1,"total":2.5}', b'{"id":2}', b'{"total":1}', b'{"id":"x"}', b"no", b"\xff"]
    topic.send(0, [Sent(body, tags="ab"[n % 2], keys=f"k{n}") for n, body in enumerate(bodies)])
    return topic


def test_a_query_reads_only_the_columns_that_it_uses(spark: SparkSession, orders: Topic) -> None:
    options = {"nameServer": orders.name_server}
    name = orders.name

    def answer(text: str) -> tuple[list[tuple[object, ...]], tuple[str, ...]]:
        frame = sql(spark, text, options)
        columns = used_columns(frame, [name], text)[name]
        assert set(columns) == set(spark.table(name).columns)
        return sorted(map(tuple, frame.collect()), key=str), columns

    by_tag = f"SELECT tags, count(*) FROM {name} GROUP BY tags"
    assert answer(by_tag) == ([("a", 3), ("b", 3)], ("tags",))
    assert answer(f"SELECT count(*) FROM {name}") == ([(6,)], ("queueId",))
    one = f"SELECT a.keys FROM {name} a JOIN {name} b ON a.keys = b.tags OR b.queueOffset = 5"
    assert answer(one)[1] == ("queueOffset", "keys", "tags")
    both = f"SELECT tags FROM {name} UNION ALL SELECT keys FROM {name}"
    assert len(answer(both)[0]) == 12
    rows, columns = answer(f"SELECT * FROM {name} WHERE tags = 'a'")
    assert (len(rows), len(columns)) == (3, 17)
    with pytest.raises(ConfigError, match="names no topic of"):
        sql(spark, "SELECT * FROM nowhere", options)


_QUERIES = (
    "SELECT tags FROM {0} LIMIT 0",
    "SELECT (SELECT max(keys) FROM {0} WHERE tags = 'b'), * EXCEPT (body) FROM {0}",
    "SELECT {1}, max(keys) FROM {0} WHERE keys LIKE '%RelationV2%' OR tags = 'a'",
    "WITH t AS (SELECT tags, keys FROM {0}) SELECT tags FROM t LIMIT 1",
    "SELECT count(*) FROM (SELECT * FROM {0} ORDER BY queueOffset)",
    "SELECT tags FROM {0} WHERE false",
    "SELECT count(*) FROM {0} WHERE tags = 'a' AND body IS NOT NULL OR true",
    "SELECT o.keys FROM {0} o LEFT SEMI JOIN {0} p ON o.msgId = p.msgId",
    "SELECT count(*) FROM {0} o LEFT JOIN (SELECT DISTINCT tags FROM {0}) p USING (tags)",
    "SELECT first(body) FROM {0}",
)


@pytest.mark.parametrize(
    "queries", [_QUERIES[:3], pytest.param(_QUERIES[3:], marks=pytest.mark.nightly)]
)
def test_a_query_gives_what_it_gives_with_all_columns(
    spark: SparkSession, orders: Topic, queries: tuple[str, ...]
) -> None:
    many = ", ".join(f"max(queueOffset + {n})" for n in range(40))
    orders.read(spark, columns=",".join(COLUMNS)).createOrReplaceTempView("whole")
    for query in queries:
        frame = sql(spark, query.format(orders.name, many), {"nameServer": orders.name_server})
        expected = spark.sql(query.format("whole", many))
        assert frame.columns == [name.replace("whole", orders.name) for name in expected.columns]
        assert sorted(map(str, frame.collect())) == sorted(map(str, expected.collect()))


def test_topics_that_differ_in_case_are_told_apart() -> None:
    topics = ["orders", "Orders", "evt"]
    assert _named("SELECT * FROM Orders WHERE tags = 'orders'", topics) == ["Orders"]
    assert _named("SELECT * FROM EVT, `orders`", topics) == ["evt", "orders"]
    for text in ("SELECT * FROM orders, Orders", "SELECT * FROM ORDERS"):
        with pytest.raises(ConfigError, match="topics Orders and orders differ only in case"):
            _named(text, topics)


def test_a_query_on_the_command_line(orders: Topic, capsys: pytest.CaptureFixture[str]) -> None:
    text = f"SELECT keys, body FROM {orders.name} ORDER BY queueOffset"
    common = ["query", text, "-n", orders.name_server]
    assert main([*common, "--limit", "1"]) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines() == [
        "keys  body",
        'k0    {"id":1,"total":2.5}',
        "... the first 1 rows; --limit 0 shows all",
    ]
    assert main([*common, "--since", "1h", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["keys"] for line in lines] == [f"k{n}" for n in range(6)]
    assert lines[5]["body"] == "\\xff"
    assert main(["query", f"SELEC 1 FROM {orders.name}", "-n", orders.name_server]) == 2
    assert "error: [PARSE_SYNTAX_ERROR]" in capsys.readouterr().err
    assert main(["query", text, "-n", orders.name_server, "--since", "soon"]) == 2
    assert "`soon` is not a time" in capsys.readouterr().err


def test_bodies_that_do_not_fit_are_set_apart(spark: SparkSession, orders: Topic) -> None:
    messages = orders.read(spark)
    rows, bad = pyrmq.spark.json(messages, "id BIGINT NOT NULL, total DOUBLE, tags STRING")
    assert [tuple(r) for r in rows.select("id", "total", "tags", "keys").collect()] == [
        (1, 2.5, None, "k0"),
        (2, None, None, "k1"),
    ]
    found = {row.queueOffset: row.reason for row in bad.collect()}
    assert found == {
        2: "id is missing or null",
        3: "not a JSON object of id:bigint, total:double, tags:string",
        4: "not a JSON object of id:bigint, total:double, tags:string",
        5: "the body is not UTF-8",
    }
    assert bad.columns[:5] == ["reason", "topic", "brokerName", "queueId", "queueOffset"]
    with pytest.raises(SchemaError, match="the schema 'id BIGNT' cannot be read"):
        pyrmq.spark.json(messages, "id BIGNT")
    with pytest.raises(SchemaError, match="column body is missing: there are tags"):
        pyrmq.spark.json(messages.select("tags"), "id BIGINT")


def test_a_body_with_more_than_one_object_does_not_fit(spark: SparkSession, topic: Topic) -> None:
    """Spark reads the first one, and the rest would be lost without a word."""
    fitting = ['{"id":1}', ' \n{"id":2,"a":[{"b":"}{"}]}\r\n', "{'id':3}"]
    more = ['{"id":4}{"id":5}', '{"id":6} text', '{"id":7}\n{"id":8}', '{"id":9},{"id":10}']
    others = ['[{"id":11},{"id":12}]', '"x"', "null", '{"id":13}],[{"id":14}', '{"id":15}}']
    frame = spark.createDataFrame([(text,) for text in [*fitting, *more, *others]], "body STRING")
    rows, bad = pyrmq.spark.json(frame, "id BIGINT")
    assert sorted(row.id for row in rows.collect()) == [1, 2, 3]
    found = {row.body: row.reason for row in bad.collect()}
    assert found.keys() == {*more, *others}
    assert {found[text] for text in more} == {"more than one JSON object, or text after it"}


def test_a_schema_is_found_from_bodies(spark: SparkSession, orders: Topic) -> None:
    fitting = orders.read(spark).where("queueOffset < 3")
    assert pyrmq.spark.infer(fitting) == "`id` BIGINT, `total` DOUBLE"
    rows, bad = pyrmq.spark.json(fitting, pyrmq.spark.infer(fitting))
    assert (rows.count(), bad.count()) == (3, 0)
    with pytest.raises(ConfigError, match="no body of the first 1000 messages is a JSON object"):
        pyrmq.spark.infer(orders.read(spark).where("queueOffset = 4"))
    with pytest.raises(ConfigError, match="a schema is inferred from a batch read"):
        pyrmq.spark.infer(orders.stream(spark).load())


def test_the_doctor_asks_every_executor(
    spark: SparkSession,
    site: Site,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reports = examine_executors(spark, site.name_server)
    assert [report.role for report in reports] == ["driver", "executor"]
    assert [report.problems for report in reports] == [[], []]
    assert site.broker in reports[1].reached
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        monkeypatch.setattr(
            "pyrmq.spark.checks._advertised", lambda *_: ({address: "broker-x"}, [])
        )
        assert main(["spark", "doctor", "-n", site.name_server]) == 1
    shown = capsys.readouterr().out
    assert shown.count(f"error: broker broker-x at {address} cannot be reached: ") == 2
    assert "set brokerIP1 of the broker" in shown


def test_the_table_function_reads_a_topic(
    spark: SparkSession, new_topic: Callable[..., Topic], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(1)
    topic.send(0, ["a", "b"])
    monkeypatch.setenv("NAMESRV_ADDR", topic.name_server)
    pyrmq.spark.register(spark)
    text = f"SELECT cast(body AS string) FROM rocketmq('{topic.name}', since => '1h')"
    assert sorted(row[0] for row in spark.sql(text).collect()) == ["a", "b"]
    assert spark.sql(f"SELECT * FROM rocketmq('{topic.name}', lines => 1)").count() == 1
