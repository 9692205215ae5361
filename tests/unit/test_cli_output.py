"""The output and exit status of commands."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from pyrmq.cli import main
from pyrmq.cli.output import columns_of, print_json, print_rows, table

if TYPE_CHECKING:
    from pathlib import Path


def test_columns_are_aligned_and_numbers_stand_right() -> None:
    assert table(["topic", "queues"], [["orders", 8], ["t", 16]]) == [
        "topic   queues",
        "orders       8",
        "t           16",
    ]


def test_the_widest_column_is_cut_to_fit_the_terminal() -> None:
    lines = table(["topic", "queues"], [["a" * 50, 8]], width=20)
    assert lines[1] == "a" * 11 + "…       8"
    assert all(len(line) <= 20 for line in lines)


def test_columns_that_do_not_fit_side_by_side_are_blocks() -> None:
    headers = ["broker", "message id", "body", "time"]
    rows: list[list[object]] = [["broker-a", "0A" * 16, "x" * 99, 7], ["b", None, "y", 8]]
    assert table(headers, rows, width=30) == [
        "broker      broker-a",
        "message id  0A0A0A0A0A0A0A0A0…",
        "body        xxxxxxxxxxxxxxxxx…",
        "time        7",
        "",
        "broker      b",
        "message id  -",
        "body        y",
        "time        8",
    ]
    assert table(headers, [], width=20) == ["broker  message id …"]
    assert all(len(line) <= 8 for line in table(headers, rows, width=8))
    # Eight columns for each but the short one, and three gaps.
    assert len(table(headers, rows, width=34)) == 3
    assert len(table(headers, rows, width=33)) == 9


def test_wide_characters_and_accents_are_measured_as_a_terminal_shows_them() -> None:
    lines = table(["body", "n"], [["お茶", 1], ["cafe\u0301", 2], ["tea", 3]])
    assert lines == ["body  n", "お茶  1", "cafe\u0301  2", "tea   3"]
    cut = table(["body", "n"], [["お茶" * 10, 1]], width=12)[1]
    assert (cut, columns_of(cut)) == ("お茶お茶…  1", 12)


def test_missing_values_are_a_dash() -> None:
    assert table(["a", "b"], [[None, 1], ["x", None]]) == ["a  b", "-  1", "x  -"]


def test_programs_get_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(["topic", "read queues"], [["örders", 8], ["t", None]], as_json=True)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [{"topic": "örders", "read_queues": 8}, {"topic": "t", "read_queues": None}]


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for verb in ("nameserver", "broker", "server", "send", "tail", "topic"):
        assert f"\n  {verb} " in text


def test_no_command_is_wrong_usage() -> None:
    assert main([]) == 2


def test_an_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["brokr"]) == 2
    assert capsys.readouterr().err == (
        "error: unknown command `brokr`: did you mean `broker`?\nsee: pyrmq --help\n"
    )


def test_a_wrong_option_value_is_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["broker", "--listen-port", "70000"]) == 2
    assert capsys.readouterr().err == (
        "error: `listenPort` is 70000: it must be a whole number from 0 to 65535\n"
        "see: pyrmq broker --help\n"
    )


def test_p_prints_what_holds_as_properties(
    capsys: pytest.CaptureFixture[str], tmp_path: object
) -> None:
    assert main(["broker", "-p", "-n", "a:1;b:2", "--broker-name", "broker-b"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "namesrvAddr=a:1;b:2" in lines
    assert "brokerName=broker-b" in lines
    assert "flushDiskType=ASYNC_FLUSH" in lines


def test_p_prints_json_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    for words, roles in (
        (["broker", "--broker-name", "b"], ["broker"]),
        (["nameserver"], ["name_server"]),
        (["server", "--broker-name", "b"], ["name_server", "broker"]),
    ):
        assert main([*words, "-p", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert list(found) == roles
        assert found.get("broker", {"brokerName": "b"})["brokerName"] == "b"


def test_the_command_line_wins_over_the_file(
    capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    file = tmp_path_factory.mktemp("conf") / "namesrv.properties"
    file.write_text("listenPort=1111\nenableTopicList=false\n")
    assert main(["nameserver", "-c", str(file), "-p", "--listen-port", "2222"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "listenPort=2222" in lines
    assert "enableTopicList=false" in lines


def test_the_environment_stands_between_file_and_command_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "namesrv.properties"
    file.write_text("listenPort=1111\nenableTopicList=false\n")
    monkeypatch.setenv("PYRMQ_NAMESERVER_LISTEN_PORT", "2222")
    monkeypatch.setenv("PYRMQ_NAMESERVER_BIND_ADDRESS", "127.0.0.2")
    monkeypatch.setenv("PYRMQ_BROKER_BROKER_NAME", "of-another-role")
    assert main(["nameserver", "-c", str(file), "-p", "--bind-address", "127.0.0.3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {"listenPort=2222", "enableTopicList=false", "bindAddress=127.0.0.3"} <= set(lines)


@pytest.mark.parametrize(
    ("variable", "value", "text"),
    [
        (
            "PYRMQ_NAMESERVER_LISTEN_PORT",
            "many",
            "`PYRMQ_NAMESERVER_LISTEN_PORT` is 'many': it must be a whole number from 0 to 65535",
        ),
        (
            "PYRMQ_NAMESERVER_LISTEN_PROT",
            "1",
            "did you mean `PYRMQ_NAMESERVER_LISTEN_PORT`?",
        ),
    ],
)
def test_a_wrong_variable_is_named(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
    value: str,
    text: str,
) -> None:
    monkeypatch.setenv(variable, value)
    assert main(["nameserver", "-p"]) == 2
    assert text in capsys.readouterr().err


def test_a_file_that_is_not_there_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["broker", "-c", "/nowhere/broker.conf", "-p"]) == 2
    assert "cannot read the property file `/nowhere/broker.conf`" in capsys.readouterr().err


def test_only_what_a_command_needs_is_imported() -> None:
    program = (
        "import sys; from pyrmq.cli import main; main(['nameserver', '-p']); "
        "print(sorted(m for m in sys.modules if m in "
        "('asyncio', 'ssl', 'pyarrow', 'tempfile', 'json', 'pyrmq.producer')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=20
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("encoding", ["ascii", "iso-8859-1", "utf-8"])
def test_json_is_json_in_every_encoding(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    # As `main` sets it.
    output = io.TextIOWrapper(raw, encoding=encoding, errors="backslashreplace")
    monkeypatch.setattr(sys, "stdout", output)
    print_json({"body": "thé \U0001f375"})
    output.flush()
    assert json.loads(raw.getvalue().decode(encoding)) == {"body": "thé \U0001f375"}
