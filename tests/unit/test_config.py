"""Options: Apache's names, types, bounds; errors for wrong or unknown keys."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from pyrmq.config import BrokerOptions, NameServerOptions, Options
from pyrmq.errors import ConfigError
from pyrmq.server.load import load

if TYPE_CHECKING:
    from pathlib import Path

ROLES = [NameServerOptions, BrokerOptions]


@pytest.mark.parametrize("role", ROLES)
def test_every_option_says_what_it_does(role: type[Options]) -> None:
    for item in role.fields:
        assert item.text, item.name
        assert not item.text.endswith("."), item.name
    names = [item.apache for item in role.fields]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("role", ROLES)
def test_defaults_survive_a_trip_through_properties(role: type[Options]) -> None:
    assert role.from_properties(role().to_properties()) == role()


def test_apache_names_are_those_of_apache() -> None:
    names = {item.name: item.apache for item in BrokerOptions.fields}
    assert names["broker_ip1"] == "brokerIP1"
    assert names["namesrv_addr"] == "namesrvAddr"
    assert names["auto_create_topic_enable"] == "autoCreateTopicEnable"


def test_options_cannot_be_changed_in_place() -> None:
    options = NameServerOptions()
    with pytest.raises(AttributeError, match=r"frozen: use with_values\(listen_port="):
        options.listen_port = 1  # type: ignore[misc]
    assert options.with_values(listen_port=1).listen_port == 1
    assert options.listen_port == 9876


@pytest.mark.parametrize(
    ("key", "text", "wanted"),
    [
        ("listenPort", "70000", "`listenPort` is 70000: it must be a whole number from 0 to 65535"),
        ("listenPort", "x", "`listenPort` is 'x': it must be a whole number from 0 to 65535"),
        ("listenPort", "", "`listenPort` is '': it must be a whole number"),
        ("listenPort", "-1", "`listenPort` is -1: it must be a whole number from 0 to 65535"),
        ("enableTopicList", "yes", "`enableTopicList` is 'yes': it must be true or false"),
        ("waitSecondsForService", "1.5", "it must be a whole number of s from 0 to "),
    ],
)
def test_a_wrong_value_in_a_file_is_refused_with_key_and_range(
    key: str, text: str, wanted: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        NameServerOptions.from_properties({key: text})
    assert wanted in str(caught.value)


def test_a_wrong_value_of_a_keyword_is_refused_with_key_and_range() -> None:
    with pytest.raises(ConfigError, match="`listen_port` is '9876': it must be a whole number"):
        NameServerOptions(listen_port="9876")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="`listen_port` is True"):
        NameServerOptions(listen_port=True)
    with pytest.raises(ConfigError, match="`enable_topic_list` is 1: it must be true or false"):
        NameServerOptions(enable_topic_list=1)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="one of ASYNC_FLUSH, SYNC_FLUSH"):
        BrokerOptions(flush_disk_type="FAST")


def test_texts_of_booleans_and_numbers_are_read_as_java_reads_them() -> None:
    options = NameServerOptions.from_properties({"listenPort": " 12 ", "enableTopicList": "FALSE"})
    assert (options.listen_port, options.enable_topic_list) == (12, False)


def test_an_empty_text_leaves_what_is_found_at_start() -> None:
    assert BrokerOptions.from_properties({"namesrvAddr": ""}).namesrv_addr is None


def test_unknown_keys_are_named_with_the_nearest_known_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(
        "brokerNmae=a\nhaListenPort=10912\nsendMessageThreadPoolNums=4\nfoo=1\nlistenPort=12\n"
    )
    with caplog.at_level(logging.WARNING, "pyrmq.config"):
        assert load(BrokerOptions, file).listen_port == 12
    unknown, idle = [record.getMessage() for record in caplog.records]
    assert unknown == (
        f"{file}: unknown to the broker and ignored: `brokerNmae` (did you mean `brokerName`?), "
        "`foo`"
    )
    assert idle == (
        f"{file}: without effect on this broker, though Apache's has them: "
        "`haListenPort`, `sendMessageThreadPoolNums`"
    )


def test_a_file_of_known_keys_gives_no_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerClusterName=DefaultCluster\nbrokerName=broker-a\nbrokerId=0\n")
    with caplog.at_level(logging.DEBUG):
        load(BrokerOptions, file)
    assert not caplog.records


def test_an_unknown_keyword_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match="did you mean `listen_port`"):
        NameServerOptions().with_values(listen_prot=1)
