"""Options are case-insensitive and checked, and errors suggest the nearest name."""

from __future__ import annotations

import pytest

from pyrmq.errors import RmqError
from pyrmq.spark.errors import OffsetError, OptionError, SchemaError
from pyrmq.spark.offsets import Queue
from pyrmq.spark.options import KNOWN, Options

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
            "option kafka.bootstrap.servers: is an option of Kafka's: nameServer names",
        ),
        ({"kafka.security.protocol": "SSL"}, "clients of RocketMQ have no such setting"),
        ({"includeHeaders": "true"}, "is an option of Kafka's: the column properties has them"),
        ({"zzz": "1"}, "option zzz: unknown, known are: nameServer, topic"),
        ({"minPartitions": "a"}, "option minPartitions: a whole number is wanted, found: 'a'"),
        ({"minPartitions": "-1"}, "option minPartitions: must lie between 0 and 100000, found: -1"),
        (
            {"maxOffsetsPerTrigger": "9223372036854775808"},
            "must lie between 0 and 9223372036854775807",
        ),
        (
            {"maxTriggerDelay": "soon"},
            "option maxTriggerDelay: a duration as 500ms, 30s, 15m or 1h",
        ),
        ({"onBadMessage": "drop"}, "option onBadMessage: fail, null or skip is wanted"),
        ({"readFrom": "replica"}, "option readFrom: any, master or slave is wanted"),
        ({"failOnDataLoss": "yes"}, "option failOnDataLoss: true or false is wanted, found: 'yes'"),
        ({"startingTimestamp": "noon"}, "option startingTimestamp: milliseconds or ISO 8601"),
        ({"nameServer": "localhost"}, "option nameServer: host:port is wanted, found: 'localhost'"),
        ({"nameServer": "h:99999"}, "option nameServer: host:port is wanted, found: 'h:99999'"),
        ({"topic": "a b"}, "option topic: no topic name: 'a b'"),
        ({"topic": ""}, "option topic: is missing: name the topic to read"),
        ({"topicPattern": "o.*"}, "option topic: excludes topicPattern: give one of them"),
        ({"subscribe": "orders"}, "option subscribe: given twice: it is another name of topic"),
        ({"maxBytesPerTrigger": "1"}, "option maxBytesPerTrigger: not built yet"),
        ({"commitToGroup": "true"}, "option commitToGroup: only a stream commits"),
        ({"startingOffsets": "latest"}, "option startingOffsets: latest leaves nothing to read"),
        ({"endingOffsets": "earliest"}, "option endingOffsets: earliest leaves nothing to read"),
        ({"startingOffsets": "group"}, "option group: is missing: startingOffsets needs"),
    ],
)
def test_a_wrong_option_says_which_and_what_is_wanted(given: dict[str, str], text: str) -> None:
    merged = {
        name: value for name, value in GIVEN.items() if name not in {k.lower() for k in given}
    }
    with pytest.raises(OptionError) as caught:
        Options.parse({**merged, **given}, batch=True)
    assert text in str(caught.value)
    assert isinstance(caught.value, RmqError)


def test_a_secret_is_not_in_the_error_that_refuses_it() -> None:
    with pytest.raises(OptionError, match="option secretKey: not built yet") as caught:
        parse(secretKey="hunter2")
    assert "hunter2" not in str(caught.value)


def test_a_stream_has_no_end_and_no_limit() -> None:
    for name in ("endingOffsets", "endingTimestamp", "limit"):
        with pytest.raises(OptionError, match=f"option {name}: only a batch read has an end"):
            parse(batch=False, **{name: "1"})


def test_sparks_own_options_and_switches_that_are_off_pass() -> None:
    assert parse(checkpointLocation="/x", tls="false").topics == ("orders",)


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
