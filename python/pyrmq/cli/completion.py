"""`pyrmq completion SHELL`: prints a completion script for a shell.

shtab makes the script from the parsers of all commands, so it knows every option of each. It does
not run pyrmq when a word is completed.
"""

from __future__ import annotations

from argparse import ArgumentParser
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pyrmq.cli.arguments import parser
from pyrmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

SHELLS = ("bash", "zsh", "fish", "tcsh")
# Subcommands with parsers of their own.
_NESTED = {"nameserver": ("status",), "broker": ("status", "config", "drain")}


class _Stopped(BaseException):
    """Raised when a command starts to parse its arguments."""

    def __init__(self, found: ArgumentParser) -> None:
        super().__init__()
        self.found = found


def run(verb: str, words: list[str]) -> int:
    """Run `pyrmq completion` with these arguments."""
    given = _parser(verb).parse_args(words)
    if find_spec("shtab") is None:
        raise ConfigError(
            "completion needs shtab. Fix: pip install 'pyrmq-rocketmq[completion]'. It is needed "
            "only to make the script"
        )
    import shtab

    from pyrmq.cli.main import VERBS

    root = whole(VERBS)
    _complete_files(root, {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY})
    print(shtab.complete(root, shell=given.shell))
    return 0


def whole(verbs: Mapping[str, tuple[str, str]]) -> ArgumentParser:
    """Return one parser with those of all commands below it.

    Args:
        verbs: Module and help of each command.
    """
    root = ArgumentParser(prog="pyrmq")
    commands = root.add_subparsers()
    for verb, (module, text) in verbs.items():
        found = _parser_of(module, verb, [])
        if verb in _NESTED:
            nested = found.add_subparsers()
            for name in _NESTED[verb]:
                _attach(nested, f"pyrmq {verb} {name}", "", _parser_of(module, verb, [name]))
        _attach(commands, f"pyrmq {verb}", text, found)
    return root


def _attach(commands: Any, prog: str, text: str, found: ArgumentParser) -> None:  # noqa: ANN401
    name = prog.rpartition(" ")[2]
    commands.add_parser(name, help=text, add_help=False)
    found.prog = prog
    commands.choices[name] = found


def _parser_of(module: str, verb: str, words: list[str]) -> ArgumentParser:
    """Return a command's parser. Parsing arguments is the first thing that a command does."""

    def stop(self: ArgumentParser, *_: object, **__: object) -> None:
        raise _Stopped(self)

    parse = ArgumentParser.parse_args
    ArgumentParser.parse_args = stop  # type: ignore[method-assign,assignment]
    try:
        import_module(f"pyrmq.cli.{module}").run(verb, words)
    except _Stopped as stopped:
        return stopped.found
    finally:
        ArgumentParser.parse_args = parse  # type: ignore[method-assign]
    raise AssertionError(f"`pyrmq {verb}` parsed no arguments")


def _complete_files(root: ArgumentParser, kinds: Mapping[str, object]) -> None:
    for action in root._actions:
        if action.metavar in kinds:
            action.complete = kinds[str(action.metavar)]  # type: ignore[attr-defined]
        if isinstance(action.choices, dict):
            for below in action.choices.values():
                _complete_files(below, kinds)


def _parser(verb: str) -> ArgumentParser:
    made = parser(verb, "Print a script with which a shell completes pyrmq's commands and options.")
    made.add_argument("shell", choices=SHELLS, help="the shell")
    return made
