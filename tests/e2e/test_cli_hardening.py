"""What commands make of hostile bodies, odd input, moved log files and silent servers."""

from __future__ import annotations

import io
import json
import logging
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.terminals import on_a_terminal

from pyrmq import Producer, PullConsumer
from pyrmq._client.log_output import Output
from pyrmq.cli import main
from pyrmq.cli.output import escaped, table

if TYPE_CHECKING:
    from pathlib import Path

HOSTILE = "tea \x1b]0;owned\x07\x1b[2J \x9b31m \u202egnp.exe\rfake"


def feed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_control_characters_do_not_reach_a_terminal(
    address: str, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with Producer(name_server=address) as producer:
        sent = producer.send(topic, HOSTILE, keys=["k"], properties={"note": "\x1b[2J"})
    at = ["-n", address]
    for words in (
        ["tail", topic, "--from", "first", "--stop"],
        ["tail", topic, "--from", "first", "--stop", "--json"],
        ["tail", topic, "--from", "first", "--stop", "--format", "{body} {properties}"],
        ["message", "show", sent.message_id, "--topic", topic],
        ["message", "query", topic, "k"],
    ):
        shown = on_a_terminal(*words, *at)
        assert "tea" in shown
        assert not set(shown.replace("\r\n", "")) & {"\x1b", "\x07", "\x9b", "\u202e", "\r"}, words
    # A pipe gets the bytes, and JSON means the same.
    assert main(["tail", topic, "--from", "first", "--stop", "--json", *at]) == 0
    assert json.loads(capsys.readouterr().out)["body"] == HOSTILE


def test_cells_of_tables_are_escaped() -> None:
    assert escaped("a\tb\x7f") == "a\tb\\x7f"
    assert table(["body"], [["a\nb\x1b"]])[1] == "a\\x0ab\\x1b"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("[1]", "it must be an object with `body`"),
        ("{}", "it must be an object with `body`"),
        ("nonsense", "it must be an object with `body`"),
        ("[" * 100_000, "it must be an object with `body`"),
        ('{"body": 7}', "`body` must be a string, not 7"),
        ('{"body": "x", "keys": "abc"}', "`keys` must be a list of strings"),
        ('{"body": "x", "keys": [1]}', "`keys` must be a list of strings"),
        ('{"body": "x", "tags": ["t"]}', "`tags` must be a string"),
        ('{"body": "x", "properties": [1]}', "`properties` must be an object of strings"),
        ('{"body": "x", "properties": {"a": 1}}', "`properties` must be an object of strings"),
        ('{"body_base64": "!"}', "`body_base64` is not base64"),
        ('{"body": "\\ud800"}', "half of a surrogate pair"),
    ],
)
def test_odd_lines_are_clear_errors_with_their_number(
    line: str,
    why: str,
    address: str,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    feed(monkeypatch, f'{{"body": "first"}}\n\n{line}\n{{"body": "last"}}\n')
    assert main(["send", topic, "-", "--from-json", "-n", address]) == 2
    said = capsys.readouterr().err
    assert "line 3 of standard input" in said
    assert why in said
    assert said.splitlines()[0].endswith("sent 1 message of it")


def test_a_line_that_cannot_be_sent_is_named(
    address: str, topic: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Producer(name_server=address) as producer:
        producer.send(topic, b"x")
    feed(monkeypatch, "one\ntwo\n" + "x" * (5 << 20) + "\nfour\n")
    assert main(["send", topic, "-", "-n", address]) != 0
    said = capsys.readouterr().err
    assert "lines 1 to 4 of standard input" in said
    assert "sent 0 messages of it" in said


def test_lag_is_a_probe(address: str, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    with Producer(name_server=address) as producer:
        for _ in range(3):
            producer.send(topic, b"x")
    group = f"probe-{topic}"
    with PullConsumer(name_server=address, group=group) as consumer:
        consumer.subscribe(topic)
        while not consumer.poll(1, timeout=10):
            pass
        consumer.commit()
    words = ["group", "lag", group, "--topic", topic, "-n", address]
    lags: list[dict[str, Any]] = []
    assert main([*words, "--json"]) == 0
    lags = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    behind = sum(one["lag"] for one in lags)
    assert main([*words, "--max", str(behind)]) == 0
    with Producer(name_server=address) as producer:
        producer.send(topic, b"x")
    assert main([*words, "--max", str(behind)]) == 1


def test_a_moved_log_file_is_opened_again(tmp_path: Path) -> None:
    root, before = logging.getLogger(), logging.getLogger().handlers[:]
    level, file = root.level, tmp_path / "broker.log"
    log = logging.getLogger("moved")
    try:
        Output(str(file)).install("INFO")
        log.info("one")
        file.rename(tmp_path / "broker.log.1")
        log.info("two")
        file.unlink()
        log.info("three")
    finally:
        for handler in root.handlers[:]:
            root.removeHandler(handler)
            handler.close()
        for handler in before:
            root.addHandler(handler)
        root.setLevel(level)
    assert "one" in (tmp_path / "broker.log.1").read_text("utf-8")
    assert "two" not in (tmp_path / "broker.log.1").read_text("utf-8")
    assert "three" in file.read_text("utf-8")
