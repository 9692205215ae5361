"""Options are case-insensitive and checked, and errors suggest the nearest name."""

from __future__ import annotations

import pytest

from pyrmq._tables.errors import OffsetError, OptionError, SchemaError
from pyrmq._tables.offsets import Queue
from pyrmq._tables.options.security import Security
from pyrmq._tables.options.topic_options import KNOWN, Options
from pyrmq.errors import RmqError

GIVEN = {"nameserver": "127.0.0.1:9876", "topic": "orders"}


def parse(batch: bool = True, **more: str) -> Options:  # noqa: FBT001
    return Options.parse({**GIVEN, **more}, batch=batch)


def test_defaults_are_those_of_the_table() -> None:
    options = parse()
    assert options.starting == "earliest"
    assert options.ending == "latest"
    assert options.tags == "*"
    assert options.max_offsets_per_trigger == int(KNOWN["maxOffsetsPerTrigger"][0])
    assert options.max_trigger_delay_ms == 15 * 60_000
    assert options.fail_on_data_loss
    assert parse(batch=False).starting == "latest"


def test_names_come_in_any_case_and_by_alias() -> None:
    options = Options.parse(
        {"NAMESERVER": "a:1;b:2", "Subscribe": "x, y,x", "FAILondataLOSS": "FALSE"}, batch=False
    )
    assert options.name_server == "a:1;b:2"
    assert options.topics == ("x", "y")
    assert not options.fail_on_data_loss


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {"startingOfsets": "earliest"},
            "option startingOfsets: unknown, did you mean startingOffsets?",
        ),
        (
            {"kafka.bootstrap.servers": "h:1"},
            "option kafka.bootstrap.servers: is an option of Kafka's: nameServer is",
        ),
        ({"kafka.security.protocol": "SSL"}, "clients of RocketMQ have no such setting"),
        ({"includeHeaders": "true"}, "is for layout=kafka: here the column properties has them"),
        ({"kafka.fetchOffset": "1"}, "clients of RocketMQ have no such setting"),
        ({"queues": "orders"}, "option queues: not JSON of the form"),
        ({"assign": '{"orders":{"b":["x"]}}'}, "broker b: expected a list of queue numbers"),
        ({"queues": "{}"}, "option queues: names no queue"),
        ({"queues": '{"t":{"b":[0]}}'}, "option topic: excludes queues: give one of them"),
        ({"layout": "kafak"}, "option layout: expected rocketmq or kafka, found: 'kafak'"),
        ({"sql": "a > 1", "tags": "b"}, "option sql: excludes tags: write TAGS = 'a'"),
        ({"startingOffsetsByTimestamp": '{"t":{"b":{"0":-1}}}'}, "not a time in milliseconds: -1"),
        ({"startingOffsetsByTimestampStrategy": "x"}, "expected latest or error, found: 'x'"),
        ({"zzz": "1"}, "option zzz: unknown, known are: nameServer, topic"),
        ({"minPartitions": "a"}, "option minPartitions: expected a whole number, found: 'a'"),
        ({"minPartitions": "-1"}, "option minPartitions: must be between 0 and 100000, found: -1"),
        (
            {"maxOffsetsPerTrigger": "9223372036854775808"},
            "must be between 0 and 9223372036854775807",
        ),
        (
            {"maxTriggerDelay": "soon"},
            "option maxTriggerDelay: expected a duration such as 500ms, 30s, 15m or 1h",
        ),
        ({"onBadMessage": "drop"}, "option onBadMessage: expected fail, null or skip"),
        ({"readFrom": "replica"}, "option readFrom: expected any, master or slave"),
        ({"failOnDataLoss": "yes"}, "option failOnDataLoss: expected true or false, found: 'yes'"),
        (
            {"startingTimestamp": "noon"},
            "option startingTimestamp: expected milliseconds or ISO 8601",
        ),
        ({"nameServer": "localhost"}, "option nameServer: expected host:port, found: 'localhost'"),
        ({"nameServer": "h:99999"}, "option nameServer: expected host:port, found: 'h:99999'"),
        ({"topic": "a b"}, "option topic: not a topic name: 'a b'"),
        ({"topic": ""}, "option topic: is missing: name the topic to read"),
        ({"topicPattern": "o.*"}, "option topic: excludes topicPattern: give one of them"),
        ({"subscribe": "orders"}, "option subscribe: given twice: it is another name of topic"),
        ({"maxBytesPerTrigger": "1"}, "option maxBytesPerTrigger: is for streams"),
        ({"commitToGroup": "true"}, "option commitToGroup: is for streams"),
        ({"startingOffsets": "latest"}, "option startingOffsets: latest leaves nothing to read"),
        ({"endingOffsets": "earliest"}, "option endingOffsets: earliest leaves nothing to read"),
        ({"startingOffsets": "group"}, "option group: is missing: startingOffsets needs"),
    ],
)
def test_a_wrong_option_says_which_and_what_is_wanted(given: dict[str, str], text: str) -> None:
    merged = {
        name: value for name, value in GIVEN.items() if name not in {k.lower() for k in given}
    }
    with pytest.raises((OptionError, OffsetError)) as caught:
        Options.parse({**merged, **given}, batch=True)
    assert text in str(caught.value)
    assert isinstance(caught.value, RmqError)


def test_a_secret_is_shown_nowhere() -> None:
    for given, text in (
        ({"secretKey": "hunter2"}, "option accessKey: is missing: secretKey is given"),
        ({"accessKey": "bob"}, "option secretKey: is missing: accessKey is given"),
        (
            {"accessKey": "bob", "secretKey": "hunter2", "credentials": "bob.toml"},
            "option credentials: excludes accessKey and secretKey",
        ),
        ({"secretKey": "hunter2", "SECRETKEY": "hunter2"}, "given twice"),
        ({"secretKy": "hunter2"}, "unknown, did you mean secretKey"),
    ):
        with pytest.raises(OptionError, match=text) as caught:
            parse(**given)  # type: ignore[arg-type]
        assert "hunter2" not in str(caught.value)
    options = parse(ACCESSKEY="bob", secretkey="hunter2 ")
    assert isinstance(options.security, Security)
    assert (options.security.access_key, options.security.secret_key) == ("bob", "hunter2 ")
    for kind in (repr, str, "{}".format):
        assert "hunter2" not in kind(options)
        assert "access_key='bob'" in kind(options)
    arguments = options.security.arguments()
    assert arguments["credentials"].access_key == "bob"
    given_on = options.security.options()
    assert parse(True, **given_on).security == options.security
    assert options.security.arguments()["credentials"] is arguments["credentials"]


def test_a_stream_has_no_end_and_no_limit() -> None:
    for name in ("endingOffsets", "endingTimestamp", "limit"):
        with pytest.raises(OptionError, match=f"option {name}: only a batch read has an end"):
            parse(batch=False, **{name: "1"})


def test_sparks_own_options_and_switches_that_are_off_pass() -> None:
    assert parse(checkpointLocation="/x", queryName="q", tls="false").topics == ("orders",)


def test_names_are_in_the_namespace() -> None:
    options = parse(namespace="shop", group="readers", startingOffsets='{"orders":{"b":{"0":3}}}')
    assert (options.topics, options.group) == (("shop%orders",), "shop%readers")
    assert options.starting == {Queue("shop%orders", "b", 0): 3}
    chosen = Options.parse(
        {"nameServer": "h:1", "namespace": "shop", "queues": '{"orders":{"b":[1,2]}}'}, batch=True
    )
    assert chosen.topics == ("shop%orders",)
    assert chosen.queues == {Queue("shop%orders", "b", 1), Queue("shop%orders", "b", 2)}


def test_name_servers_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "h:1;i:2")
    assert Options.parse({"path": "orders"}, batch=True).name_server == "h:1;i:2"
    monkeypatch.delenv("NAMESRV_ADDR")
    with pytest.raises(OptionError, match="environment variable NAMESRV_ADDR"):
        Options.parse({"topic": "orders"}, batch=True)


def test_conditions_are_not_pushed_down() -> None:
    with pytest.raises(OptionError, match=r"filterPushdown: is refused: .* Narrow the"):
        parse(batch=True, filterPushdown="true")
    parse(batch=True, filterPushdown="false")


def test_offsets_come_as_json() -> None:
    options = parse(startingOffsets='{"orders":{"broker-a":{"0":23,"1":-2}}}')
    assert options.starting == {
        Queue("orders", "broker-a", 0): 23,
        Queue("orders", "broker-a", 1): -2,
    }
    with pytest.raises(OffsetError, match="option startingOffsets: neither a known word nor JSON"):
        parse(startingOffsets="erliest")


def test_times_are_milliseconds_or_iso_text_with_a_zone() -> None:
    assert parse(startingTimestamp="1700000000123").starting_timestamp_ms == 1_700_000_000_123
    with pytest.raises(OptionError, match=r"no time zone: .* could be 2023-11-14T22:13:20\+00:00"):
        parse(startingTimestamp="2023-11-14T22:13:20")
    assert (
        parse(startingTimestamp="2023-11-14T23:13:20+01:00").starting_timestamp_ms
        == 1_700_000_000_000
    )


def test_columns_are_named_in_any_case() -> None:
    assert Options.column_names({"columns": "BODY, queueoffset"}) == ("body", "queueOffset")
    with pytest.raises(SchemaError, match="column bdy: unknown, did you mean body"):
        Options.column_names({"columns": "bdy"})
