"""Mistyped options of the command line."""

from __future__ import annotations

import pytest

from pyrmq.cli import main
from pyrmq.cli.arguments import parser
from tests.verbs import verbs

WITHOUT_JSON = {"completion": "a script for a shell"}
"""Verbs without `--json`, and what they print."""


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--lisen-port=3"], "did you mean --listen-port? "),
        (["--zzz"], ""),
        (["lag", "--maxx"], "did you mean --max? "),
        (["list", "--maxx"], ""),
    ],
)
def test_a_mistyped_option_names_the_nearest(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = parser("group", "Groups.")
    command.add_argument("--listen-port", type=int)
    verbs = command.add_subparsers(required=False)
    verbs.add_parser("lag").add_argument("--max")
    verbs.add_parser("list")
    with pytest.raises(SystemExit) as ended:
        command.parse_args(words)
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    assert printed.endswith(f"; {hint}pyrmq group --help lists the options\n")
    assert "usage" not in printed


def test_other_mistakes_show_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    command = parser("send", "Send.")
    command.add_argument("topic")
    for words in ([], ["topic", "more"], ["topic", ""], ["topic", " "]):
        with pytest.raises(SystemExit):
            command.parse_args(words)
        assert capsys.readouterr().err.startswith("usage: pyrmq send")


@pytest.mark.parametrize("verb", verbs())
def test_every_verb_takes_json_and_no_abbreviation(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*verb.split(), "--help"]) == 0
    assert ("--json" in capsys.readouterr().out) == (verb not in WITHOUT_JSON)
    assert main([*verb.split(), "--hel"]) == 2


def test_all_verbs_are_found() -> None:
    assert {"broker", "broker status", "secure init", "pipeline check", "tail"} <= set(verbs())
    assert set(WITHOUT_JSON) < set(verbs())
    assert len(verbs()) >= 50
