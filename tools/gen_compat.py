"""Write docs/compat.md from the table of codes and the rows of both built servers.

Run it with `make docs`. A test fails if the page differs from the output.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyrmq import Broker, NameServer, _core
from pyrmq.codes import RequestCode
from tools.page import write

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "compat.md"
APACHE = ROOT / "tests" / "golden" / "codes.json"

_HEAD = """\
# Request codes

Written by `tools/gen_compat.py` from `crates/remoting/src/codes.rs` and the tables of the two
servers; do not edit.

| `name server`, `broker` | meaning |
|---|---|
| `native` | Rust answers |
| `python` | a Python worker thread answers |
| `refused` | answered REQUEST_CODE_NOT_SUPPORTED with a remark that gives the reason |

A code that is not listed is refused too, unless an application registers a handler for it
(`Broker.processors.register`, `NameServer.processors.register`).

`versions`: which of 4.6.1, 4.9.7 and 5.5.0 have the number in the `RequestCode` of their jars
(`tests/interop/record_codes.py`). `internal`: none has it, only Apache's controller uses it.

`test`: one of the tests that send this code to a server.

Not built for Spark: log files behind URLs such as `s3://` (refused), and reading a schema registry.
[spark.md](spark.md) says what to do instead.

Topics of batches (`queue.type=BatchCQ`) are refused: `test_a_topic_of_batches_is_refused`. So is a
store that has one, even an empty one: `test_a_store_with_a_topic_of_batches_is_refused_by_name`.
Log files that have some are read: `test_log_files_of_batches_are_read_message_by_message`.

Users and policies (3001 to 3010): the requests are Apache's, the file is not. Apache keeps them in
RocksDB, which is not read; `pyrmq secure export` and `import` move them between running brokers
([security.md](security.md)).

| code | name | versions | name server | broker | note | test |
|---|---|---|---|---|---|---|
"""

_OLDER_HEAD = """\

## Older Apache brokers
Clients, `Admin` and commands work with Apache's brokers from 4.6 on, with these exceptions:

| brokers | what they do not do | what happens |
|---|---|---|
"""

_OLDER = (
    (
        "before 5.2, unless they are 5.1 with `useServerSideResetOffset=true`; later ones with "
        "`useServerSideResetOffset=false`",
        "move one queue of a group whose members are connected",
        "`reset_offsets(queue=...)` raises `NotSupported`; without members it commits the offset",
    ),
    (
        "before 5.0",
        "POP",
        "push consumers pull; `set_consume_mode` raises `NotSupported`, and so does "
        "`SimpleConsumer.receive` from 4.9.1 to 4.9.x; `consume_modes` shows no mode for them",
    ),
    (
        "before 4.9.2",
        "permit reading dead letters",
        "`pyrmq dlq` fails and names the command that permits it",
    ),
    (
        "before 4.9.1",
        "answer a request that they do not know",
        "no request is sent that they do not know, except a `SimpleConsumer`'s: it gets no "
        "messages, and logs that brokers do not answer",
    ),
)

_POP_HEAD = """\

## Apache's integration tests of POP
The classes of the module `test` in Apache's sources, which is not published as a jar. The tests
here send what they send, with the real client of 5.5.0. All pass on this broker and on a real one
of 5.5.0.

| class | test of `tests/interop/test_apache_pop.py` |
|---|---|
"""

_POP_WITHOUT = (
    ("BasePop, BasePopNormally, BasePopOrderly", "common parts of the others"),
    ("BatchAckIT with `enablePopBufferMerge`", "none: that has no effect here"),
    ("BatchChangeInvisibleTimeIT", "none: newer than 5.5.0, whose client has no such request"),
    ("NotificationIT.testNotification", "none: Apache leaves it out"),
    ("PopPriorityIT", "none: topics of type PRIORITY are handled like others here"),
    ("PopSlaveActingMasterIT", "none: there are no slaves here"),
)
"""Classes without a test here, and why."""

_CONSUMER_HEAD = """\

## Apache's integration tests of consumers
The classes `client.consumer.*` (except POP), `offset.*`, `delay.*` and `recall.*` of the module
`test`, ported as those of POP; `retry.*` is among those. All pass on this broker and on a real one
of 5.5.0.

| class | test of `tests/interop/test_apache_consumers.py` |
|---|---|
"""

_CONSUMER_WITHOUT = (
    ("BaseBroadcast, DelayConf", "common parts of the others"),
    ("LagCalculationIT.testEstimateLag", "none: it calls the store inside of Apache's broker"),
    ("OffsetResetIT.testEncodeOffsetHeader", "none: it sends nothing"),
)
"""As above."""

Rows = dict[int, tuple[str, str]]


def _rows(native: list[tuple[int, str, str]], python: list[int]) -> Rows:
    rows = {code: (kind, note) for code, kind, note in native}
    for code in python:
        kind, note = rows.get(code, ("refused", ""))
        if kind != "native":
            rows[code] = ("python", note if kind == "python" else "")
    return rows


def _versions() -> dict[int, str]:
    """Return the Apache versions that know each request code, oldest first."""
    recorded = json.loads(APACHE.read_text(encoding="utf-8"))
    known: dict[int, list[str]] = {}
    for version in reversed(recorded):
        for code in set(recorded[version]["request"].values()):
            known.setdefault(code, []).append(version.rsplit(".", 1)[0])
    return {code: ", ".join(versions) for code, versions in known.items()}


# Where to look for a test of a code, in this order: those that explain an answer come first.
_TESTS = {
    "name server": (
        "crates/nameserver/tests/name_server.rs",
        "tests/e2e/test_nameserver.py",
        "crates/nameserver/tests/*.rs",
        "tests/e2e/test_nameserver*.py",
    ),
    "broker": (
        "tests/e2e/test_broker_co*.py",
        "crates/broker/tests/send_pull.rs",
        "crates/broker/tests/transactions.rs",
        "crates/broker/tests/*.rs",
        "tests/e2e/test_broker_*.py",
    ),
}
_OTHER_TESTS = ("tests/e2e/test_*.py", "tests/interop/test_*.py")
# These send damaged requests, which proves nothing about valid ones.
_DAMAGED = ("hostile.rs", "test_header_table.py", "test_nameserver_damage.py")
# Their requests are there to see what a crash or a slow disk does, not to look at their answers.
_LAST = ("crash_points.rs", "creation.rs", "disk.rs", "hanging_writes.rs", "pop_crash_points.rs")
# Tests of these names show what a code does when it is refused, or only that it is listed.
_REFUSED = re.compile(r"refus|bad_input|cannot|without_a_row|loses_its_rights|rows_")
_METHOD = "    "
_FUNCTION = re.compile(
    r"^(?P<test>#\[(?:tokio::)?test[^\n]*\]\n(?:#\[[^\n]*\]\n)*)?(?P<indent>(?:    )?)"
    r"(?:pub(?:\(crate\))? )?(?:async )?(?:fn|def) (?P<name>\w+)",
    re.MULTILINE,
)


class _Function:
    """A function of a test file: what it names and what it calls."""

    def __init__(self, found: re.Match[str], body: str) -> None:
        self.name = found["name"]
        self.is_test = bool(found["test"]) or self.name.startswith("test_")
        self.is_method = found["indent"] == _METHOD
        self.words = set(re.findall(r"\w+", body))
        self.calls = set(re.findall(r"(\w+)\(", body))


class _TestFile:
    """A file with tests, its functions and those that it imports from `common`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        text = path.read_text(encoding="utf-8")
        own = _functions(text, "")
        imports = set(re.findall(r"\w+", text.partition("fn ")[0]))
        self._tests = [one.name for one in own if one.is_test]
        self._functions = {one.name: one for one in (*_helpers(path.parent, imports), *own)}

    def tests_of(self, code: str) -> Iterator[str]:
        """Yield the tests that name a code, then those that call a function that names it."""
        names = {one.name for one in self._functions.values() if code in one.words}
        more = names
        while more:
            yield from (f"{self.path.name}: {test}" for test in self._tests if test in more)
            calls = {one.name for one in self._functions.values() if one.calls & names}
            more = calls - names
            names |= more


def _functions(text: str, *indents: str) -> list[_Function]:
    """Return the functions that are indented as given."""
    found = [one for one in _FUNCTION.finditer(text) if one["indent"] in indents]
    ends = [one.start() for one in found[1:]] + [len(text)]
    return [_Function(one, text[one.end() : end]) for one, end in zip(found, ends, strict=True)]


def _helpers(folder: Path, imports: set[str]) -> Iterator[_Function]:
    """Yield the functions of `common` that a Rust file imports, and all methods.

    What a helper calls in `common` counts as its own.
    """
    paths = sorted(folder.glob("common/*.rs"))
    known = [
        one for path in paths for one in _functions(path.read_text(encoding="utf-8"), "", _METHOD)
    ]
    for helper in known:
        for called in known:
            if called.name in helper.calls:
                helper.words |= called.words
    yield from (one for one in known if one.is_method or one.name in imports)


def _test_files(server: str) -> list[_TestFile]:
    """Return the files that may have tests of a server's codes, the best first."""
    patterns = (*_TESTS[server], *_OTHER_TESTS)
    paths = dict.fromkeys(path for one in patterns for path in sorted(ROOT.glob(one)))
    wanted = [path for path in paths if path.name not in _DAMAGED]
    return [_TestFile(path) for path in sorted(wanted, key=lambda path: path.name in _LAST)]


def _tables() -> dict[str, Rows]:
    """Return the rows of both servers."""
    return {
        "name server": _rows(_core.name_server_rows(), NameServer().processors.codes),
        "broker": _rows(_core.broker_rows(), Broker().processors.codes),
    }


def proving_tests() -> dict[str, str]:
    """Return a test for each served request code that has one, by the code's name.

    Tests of the server that serves the code come first, and those of its refusals last.
    """
    proofs: dict[str, str] = {}
    for server, rows in _tables().items():
        files = _test_files(server)
        for code in RequestCode:
            if rows.get(code, ("refused", ""))[0] == "refused":
                continue
            tests = (test for file in files for test in file.tests_of(code.name))
            first = next(tests, None)
            if first is not None:
                best = (test for test in (first, *tests) if not _REFUSED.search(test))
                proofs[code.name] = next(best, first)
    return proofs


def served() -> list[str]:
    """Return the names of all codes that at least one server serves."""
    tables = _tables().values()
    return [
        code.name
        for code in RequestCode
        if any(rows.get(code, ("refused", ""))[0] != "refused" for rows in tables)
    ]


def render() -> str:
    """Return the page's text."""
    tables = _tables().values()
    versions, tests = _versions(), proving_tests()
    lines = []
    for code in sorted(RequestCode):
        cells = [rows.get(code, ("refused", "")) for rows in tables]
        if all(kind == "refused" for kind, _ in cells):
            # The name server gives the reason for codes that it could serve, the broker for others.
            notes = [next(note for _, note in cells if note)]
            kinds, test = "refused | refused", ""
        else:
            notes = [note for kind, note in cells if note and kind != "refused"]
            kinds = " | ".join("" if kind == "refused" else kind for kind, _ in cells)
            test = f"`{tests[code.name]}`" if code.name in tests else ""
        known = versions.get(code, "internal")
        note = "; ".join(notes)
        lines.append(f"| {int(code)} | {code.name} | {known} | {kinds} | {note} | {test} |")
    pop = _ported("test_apache_pop.py", _POP_WITHOUT)
    consumers = _ported("test_apache_consumers.py", _CONSUMER_WITHOUT)
    older = _OLDER_HEAD + "".join(f"| {' | '.join(row)} |\n" for row in _OLDER)
    ported = _POP_HEAD + pop + _CONSUMER_HEAD + consumers
    return _HEAD + "\n".join(lines) + "\n" + older + ported


def _ported(file: str, without: tuple[tuple[str, str], ...]) -> str:
    """Return rows of Apache's classes, which the docstrings of a file's tests name."""
    text = (ROOT / "tests" / "interop" / file).read_text(encoding="utf-8")
    found = re.findall(r"^def (test_\w+)\(.*?\"\"\"([\w., ]+\w)", text, re.S | re.M)
    rows = [*((name, f"`{test}`") for test, name in found), *without]
    return "".join(f"| {name} | {test} |\n" for name, test in sorted(rows))


if __name__ == "__main__":
    sys.exit(write(PAGE, render()))
