"""Runs the requested verb and prints its errors.

A verb's module is imported only when it is requested, so every command starts quickly.
Errors are one or two lines on standard error. Exit status: 0 done, 1 it failed, 2 the command or an
option is wrong, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

FAILED, WRONG, INTERRUPTED = 1, 2, 130

# Verb: its module under pyrmq.cli, and its line in the help.
VERBS = {
    "nameserver": ("servers.run", "run a name server"),
    "broker": ("servers.run", "run a broker"),
    "server": ("servers.run", "run a name server and a broker in one process"),
    "secure": ("secure", "init, user, export, import: certificates and users of a secure cluster"),
    "send": ("message.send", "send one message, or one for each line of standard input"),
    "tail": ("message.tail", "print the messages of a topic as they arrive"),
    "message": ("message.stored", "show, query or track stored messages"),
    "topic": ("topics", "list, create, describe or delete topics"),
    "group": ("groups", "list, describe, move or delete consumer groups"),
    "dlq": ("message.dlq", "list dead letters, or send them to their group again"),
    "dashboard": ("dashboard", "show a cluster on a page in the browser"),
    "doctor": ("doctor", "diagnose a cluster: problems, causes and fixes"),
    "debug": ("debug.bundle", "bundle: one archive for a bug report, without bodies or secrets"),
    "export": (
        "table.transfer",
        "write a topic or log files to a Parquet, Arrow, CSV or JSON lines file",
    ),
    "import": ("table.transfer", "send the rows of such a file"),
    "pipeline": ("pipeline", "write, check, run and watch a pipeline of one file"),
    "query": ("spark", "run SQL over topics"),
    "spark": ("spark", "doctor: check what every Spark executor can use and reach"),
    "log": ("log", "store directory: inspect, verify, export, repair"),
    "store": ("store", "snapshot, restore, disk use by topic"),
    "completion": ("completion", "print a shell completion script"),
    "bench": ("bench", "measure sending, consuming, or round trips"),
}


# Verbs that send: one that ends early for want of a reader has not done its work.
_CHANGING = {"send", "dlq", "import"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: the words after `pyrmq`. Default: those of the process.

    Returns:
        The exit status.

    Example:
        >>> main(["--version"])  # doctest: +SKIP
        0
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0 if words else WRONG
    if words[0] in ("-V", "--version"):
        from pyrmq import __version__

        print(f"pyrmq {__version__}")
        return 0
    verb = words[0]
    if verb not in VERBS:
        return _complain(f"unknown command `{verb}`{_near(verb)}", "pyrmq --help", status=WRONG)
    return _run(verb, words[1:])


def _run(verb: str, words: list[str]) -> int:
    if isinstance(sys.stdout, TextIOWrapper):
        # A body may have characters that the terminal's encoding lacks.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        module = import_module(f"pyrmq.cli.{VERBS[verb][0]}")
        status: int = module.run(verb, words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of the pipe has exited (`pyrmq tail t | head`), so output has no use.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if verb in _CHANGING:
            return _complain("the reader of the output closed it early, so not everything was done")
        return 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else WRONG
    except Exception as error:
        from pyrmq.errors import ConfigError, RmqError

        if isinstance(error, ConfigError):
            return _complain(str(error), f"pyrmq {verb} --help", status=WRONG)
        if isinstance(error, RmqError | OSError):
            return _complain(str(error))
        raise
    return status


def _complain(text: str, advice: str = "", *, status: int = FAILED) -> int:
    print(f"error: {text}", file=sys.stderr)
    if advice:
        print(f"see: {advice}", file=sys.stderr)
    return status


def _near(verb: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(verb, VERBS, n=1)
    return f": did you mean `{near[0]}`?" if near else ""


def _usage() -> str:
    width = max(map(len, VERBS))
    lines = [f"  {verb:<{width}}  {text}" for verb, (_, text) in VERBS.items()]
    return "\n".join(
        [
            "usage: pyrmq COMMAND ...",
            "",
            "Apache RocketMQ's name server, broker, producer and consumer.",
            "",
            *lines,
            "",
            "See `pyrmq COMMAND --help`. Name servers: -n host:port, or NAMESRV_ADDR.",
        ]
    )
