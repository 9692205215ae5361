"""`pyrmq completion`: scripts for shells, made of the parsers of all commands."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from pyrmq.cli import main
from pyrmq.cli.completion import SHELLS, whole
from pyrmq.cli.main import VERBS

if TYPE_CHECKING:
    from pathlib import Path

ASK = """
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_shtab_pyrmq pyrmq "${COMP_WORDS[COMP_CWORD]}" x
echo "${COMPREPLY[@]}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("gr",), "group"),
        (("group", "la"), "lag"),
        (("group", "lag", "--ma"), "--max"),
        (("broker", "conf"), "config"),
        (("broker", "config", "s"), "set"),
        (("store", ""), "snapshot restore usage"),
        (("completion", "f"), "fish"),
    ],
)
def test_bash_completes_commands_and_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], expected: str
) -> None:
    assert main(["completion", "bash"]) == 0
    script = tmp_path / "pyrmq.bash"
    script.write_text(capsys.readouterr().out)
    done = subprocess.run(
        ["bash", "-c", ASK, "bash", str(script), "pyrmq", *words],
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    assert done.stdout.strip() == expected


def test_every_command_and_shell_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    for shell in SHELLS:
        assert main(["completion", shell]) == 0
        script = capsys.readouterr().out
        assert all(verb in script for verb in VERBS)
    assert whole(VERBS).format_usage().startswith("usage: pyrmq")


def test_a_missing_extra_and_an_unknown_shell_are_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["completion", "nosh"]) == 2
    assert "invalid choice: 'nosh'" in capsys.readouterr().err
    monkeypatch.setattr("pyrmq.cli.completion.find_spec", lambda name: None)
    assert main(["completion", "bash"]) == 2
    assert "pip install 'pyrmq-rocketmq[completion]'" in capsys.readouterr().err
